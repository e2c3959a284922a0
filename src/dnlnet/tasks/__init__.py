"""A task: a model, its data, its losses and its metric together."""
