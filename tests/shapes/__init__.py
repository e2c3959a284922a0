"""Task defined outside the package: classify the shape in an image. `register_task(RECIPES)` adds it."""
