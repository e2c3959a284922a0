"""Data sets with a class for each pixel."""
