"""Insert blocks into torchvision's DeepLabV3 and Faster R-CNN, load weights as before, and train."""

import torch
import torch.nn.functional as F
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

import dnlnet

torch.manual_seed(0)


def train(model, loss_of, steps=3):
    """Take a few steps of plain SGD."""
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.02, momentum=0.9)
    for step in range(steps):
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"  step {step}: loss {loss.item():.3f}")


# DeepLabV3. Replace with your own weights; weights="DEFAULT" downloads torchvision's. backbone.12 has stride 16.
build = {"weights": None, "weights_backbone": None, "num_classes": 5}
weights = deeplabv3_mobilenet_v3_large(**build).state_dict()
model = deeplabv3_mobilenet_v3_large(**build)
blocks = dnlnet.insert(model, {"backbone.12": "dnl", "classifier.0": "dnl"}, gate="scalar")
result = model.load_state_dict(weights, strict=False)
print(f"DeepLabV3: {len(blocks)} blocks, {len(result.unexpected_keys)} unexpected tensors")
images, labels = torch.rand(2, 3, 64, 64), torch.randint(5, (2, 64, 64))
train(model, lambda model: F.cross_entropy(model(images)["out"], labels))

# Faster R-CNN takes lists of images of any size. Insert blocks into its backbone or after a level of its pyramid.
sizes = {"min_size": 96, "max_size": 128, "rpn_post_nms_top_n_train": 64}  # small, for this example
weights = fasterrcnn_mobilenet_v3_large_320_fpn(**build, **sizes).state_dict()
model = fasterrcnn_mobilenet_v3_large_320_fpn(**build, **sizes)
blocks = dnlnet.insert(model, {"backbone.body.12": "dnl"}, gate="scalar")
result = model.load_state_dict(weights, strict=False)
print(f"Faster R-CNN: {len(blocks)} block, {len(result.unexpected_keys)} unexpected tensors")
images = [torch.rand(3, 96, 128), torch.rand(3, 80, 100)]
targets = [{"boxes": torch.tensor([[10.0, 10, 60, 70]]), "labels": torch.tensor([1])}] * 2
train(model, lambda model: sum(model(images, targets).values()))
