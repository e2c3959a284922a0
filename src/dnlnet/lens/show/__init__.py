"""Draw attention: figures, pages and the explorer."""
