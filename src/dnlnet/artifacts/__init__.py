"""Files of trained models: writing, reading, loading and sharing."""
