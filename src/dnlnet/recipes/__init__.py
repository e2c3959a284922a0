"""Base classes of recipes, replacement of single values, the run context, and the protocol of predictors."""
