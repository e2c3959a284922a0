"""Insert a block into a ResNet, a ConvNeXt and an EfficientNet of timm, load weights as before, and train."""

import timm
import torch
import torch.nn.functional as F

import dnlnet

# Insert the block after a stage or after one of its residual blocks. `print(model)` shows the names.
PLACES = {"resnet18": "layer3.0", "convnext_atto": "stages.2", "efficientnet_b0": "blocks.4"}

torch.manual_seed(0)
images, labels = torch.randn(8, 3, 64, 64), torch.arange(8)

for name, place in PLACES.items():
    # Replace with your own weights. With a connection, pretrained=True before the insertion does the same.
    weights = timm.create_model(name, num_classes=8).state_dict()

    model = timm.create_model(name, num_classes=8)
    block = dnlnet.insert(model, {place: "dnl"}, gate="scalar")[place]
    result = model.load_state_dict(weights, strict=False)  # only the block's names are new
    new, unexpected = len(result.missing_keys), len(result.unexpected_keys)
    print(f"{name}: {block.channels} channels after {place}, {new} new tensors, {unexpected} unexpected")

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(4):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"  step {step}: loss {loss.item():.3f}, gate {block.gamma.item():+.4f}")
