"""A task from outside the package: which shape an image shows. `register_task(RECIPES)` adds it."""
