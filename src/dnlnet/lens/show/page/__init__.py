"""One HTML file in which the attention of any point of a picture is a touch away."""
