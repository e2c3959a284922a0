"""Data sets of objects, in COCO's format."""
