"""Networks of timm, torchvision and transformers, loaded by name to look into."""
