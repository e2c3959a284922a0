"""Your first attention maps: train a tiny net on generated scenes and write its attention to attention.png.

python attention_figure.py [PICTURE] uses your own picture instead of a generated one. The net is trained for 60 steps
on simple scenes, so expect it to group colours and textures, not to recognise a car.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dnlnet.data.pictures import read_picture
from dnlnet.lens import capture
from dnlnet.lens.figures import attention_figure
from dnlnet.lens.panels import save_figure
from dnlnet.lens.views import Picture, View
from dnlnet.segmentation.data.scenes import CLASSES, scene
from dnlnet.segmentation.scenes import run

outcome = run("dnl", steps=60, size=64)  # four convolutions, one DNL block, a classifier
print(
    f"trained in {outcome.seconds:.0f} s: mIoU {outcome.before.miou():.2f} before, {outcome.after.miou():.2f} after"
)

if len(sys.argv) > 1:
    image = Image.fromarray(read_picture(Path(sys.argv[1])))
    image.thumbnail((160, 160))
    name, pixels, labels = Path(sys.argv[1]).name, np.array(image), None
else:
    image, truth = scene((0, 1), size=96)  # one that the net was not trained on
    pixels, labels = (255 * image).round().astype(np.uint8).transpose(1, 2, 0), truth.astype(np.uint8)
    name = "a scene"

# While the model runs, `capture` keeps the queries and keys of every block, wherever it is in the model.
with capture(outcome.model.eval()) as blocks, torch.no_grad():
    logits = outcome.model(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255).logits
prediction = logits.argmax(dim=1)[0].to(torch.uint8).numpy()

# The maps of three points well inside the largest regions; or choose your own as (row, column).
picture = Picture(name, pixels, [View("DNL", blocks["block"], prediction)], labels, CLASSES)
points = picture.interior_points()
save_figure(attention_figure(picture, points), Path("attention.png"))
print(f"written: attention.png, with the maps of {', '.join(f'row {row} column {column}' for row, column in points)}")
