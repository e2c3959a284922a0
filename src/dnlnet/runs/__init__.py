"""Runs: a recipe or a model, and files in a folder."""
