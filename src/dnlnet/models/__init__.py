"""Networks that use the attention block."""
