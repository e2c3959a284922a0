"""Insert blocks into a Unet of segmentation_models_pytorch, load weights as before, and train."""

import segmentation_models_pytorch as smp
import torch
import torch.nn.functional as F

import dnlnet

torch.manual_seed(0)

# encoder_weights=None downloads nothing. With "imagenet", build the model first, then insert.
weights = smp.Unet("resnet18", encoder_weights=None, classes=5).state_dict()  # replace with your own weights
model = smp.Unet("resnet18", encoder_weights=None, classes=5)

# Attention is cheap after the deepest stage, at stride 32; `decoder.blocks.0` is finer.
blocks = dnlnet.insert(model, {"encoder.layer4": "dnl", "decoder.blocks.0": "gc"}, gate="scalar")
result = model.load_state_dict(weights, strict=False)
print(f"Unet: {len(blocks)} blocks, {len(result.unexpected_keys)} unexpected tensors")

images = torch.rand(4, 3, 64, 64)
masks = (images.mean(dim=1) * 5).long()  # something learnable
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    loss = F.cross_entropy(model(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gates = ", ".join(f"{block.gamma.item():+.4f}" for block in blocks.values())
    print(f"step {step}: loss {loss.item():.3f}, gates {gates}")
