"""Converters of segmentation networks."""
