"""Converters of detectors."""
