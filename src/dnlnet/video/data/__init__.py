"""Video data sets and the sampling of clips."""
