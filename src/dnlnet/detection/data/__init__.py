"""Detection data sets in COCO's format."""
