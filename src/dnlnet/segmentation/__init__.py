"""Semantic segmentation: networks, losses, data sets, metric and prediction."""
