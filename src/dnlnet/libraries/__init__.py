"""Load networks of timm, torchvision and transformers by name."""
