"""Scores of predictions against the truth."""
