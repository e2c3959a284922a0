"""Train, evaluate, predict and measure: one module per command."""
