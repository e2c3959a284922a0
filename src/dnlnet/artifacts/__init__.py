"""Trained models as files: written, read, loaded, shared."""
