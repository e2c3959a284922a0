"""Your first attention maps: train a tiny net on generated scenes, look at a picture, write attention.png.

python attention_figure.py [PICTURE] looks at your own picture instead of a generated one. The net has seen nothing
but 60 batches of scenes, so expect it to group colours and textures, not to know a car.
"""

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

import dnlnet
from dnlnet.data.pictures import read_picture
from dnlnet.lens import capture
from dnlnet.lens.figures import attention_figure
from dnlnet.lens.panels import save_figure
from dnlnet.lens.views import Picture, View
from dnlnet.recipes import find_recipe, override
from dnlnet.recipes.train import train_recipe
from dnlnet.segmentation.data.scenes import scene

# Four convolutions, one DNL block, a classifier; given a second time, the script finds the run finished.
short = ["schedule.iterations=60", "data.crop=[64, 64]"]
start = perf_counter()
outcome = train_recipe(override(find_recipe("scenes-tiny-dnl"), short), None, Path("run"), report=lambda _: None)
print(f"trained in {perf_counter() - start:.0f} s: mIoU {outcome.best:.2f} on scenes it has not seen")
model = dnlnet.load("run")

if len(sys.argv) > 1:
    image = Image.fromarray(read_picture(Path(sys.argv[1])))
    image.thumbnail((160, 160))
    name, pixels, labels = Path(sys.argv[1]).name, np.array(image), None
else:
    image, truth = scene((0, 1), size=96)  # one that the net was not trained on
    pixels, labels = (255 * image).round().astype(np.uint8).transpose(1, 2, 0), truth.astype(np.uint8)
    name = "a scene"

# While the model runs, `capture` keeps queries and keys of every block: of yours, too, wherever it is in a model.
with capture(model.network) as blocks:
    prediction = model.predict(pixels)

# The maps of three points, well inside the largest regions; or give your own as (row, column).
picture = Picture(name, pixels, [View("DNL", blocks["block"], prediction.labels)], labels, model.classes)
points = picture.interior_points()
save_figure(attention_figure(picture, points), Path("attention.png"))
print(f"written: attention.png, with the maps of {', '.join(f'row {row} column {column}' for row, column in points)}")
