"""Benchmarks of speed and memory on this machine."""
