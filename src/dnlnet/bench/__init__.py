"""Measurements of speed and memory on the machine at hand."""
