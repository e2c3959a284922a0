"""Action recognition: the network, data sets, metric and prediction."""
