"""Data sets of pictures with a class for each pixel."""
