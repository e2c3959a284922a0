"""Conversion of other code bases' checkpoints to model files."""
