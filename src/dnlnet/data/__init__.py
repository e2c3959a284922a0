"""Data sets: images with their labels."""
