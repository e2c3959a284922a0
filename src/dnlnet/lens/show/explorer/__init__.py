"""One HTML file in which the attention of any point of a picture is a touch away."""

from dnlnet.lens.show.explorer.page import explorer_page

__all__ = ["explorer_page"]
