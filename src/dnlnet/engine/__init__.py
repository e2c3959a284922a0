"""Training loop for every task, independent of models and data sets."""
