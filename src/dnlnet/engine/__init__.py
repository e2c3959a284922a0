"""Training: one loop for every task, which knows neither models nor data sets."""
