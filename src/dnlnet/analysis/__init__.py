"""Attention seen from outside: maps, figures, and the paper's equations checked by computation."""
