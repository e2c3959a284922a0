"""Converters of video networks."""
