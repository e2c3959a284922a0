"""Turn recorded attention into numbers. Needs only torch and numpy."""

BOUNDARY_WIDTH = 5  # pixels on each side of a contour, as in the paper
