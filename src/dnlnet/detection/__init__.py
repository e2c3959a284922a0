"""Detection with instance masks: the network, data sets, metric and prediction."""
