"""One HTML file that shows the attention of any point of an image."""
