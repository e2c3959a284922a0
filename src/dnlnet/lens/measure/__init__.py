"""Turn recorded attention into numbers. Needs only torch and numpy."""
