"""Recipes: what every one of them says, whatever its system, and how single values are replaced."""
