"""Data sets of videos, and how clips are taken from them."""
