"""Your first attention maps: train a tiny net on generated scenes, look at a picture, write figures/*.png.

python attention_figure.py [PICTURE] looks at your own picture instead of one that comes with matplotlib. The net has
seen nothing but 60 batches of scenes, so expect it to group colours and textures, not to know a face.
"""

import sys

import numpy as np
import torch
from matplotlib.cbook import get_sample_data
from PIL import Image

import dnlnet

# Four convolutions, one DNL block, a classifier; the run goes on if it is stopped, and is not repeated.
short = ["schedule.iterations=60", "data.crop=[64, 64]", "training.evaluate_every=60"]
dnlnet.train(dnlnet.override(dnlnet.find_recipe("scenes-tiny-dnl"), short), None, "run")

image = Image.open(
    sys.argv[1] if len(sys.argv) > 1 else get_sample_data("grace_hopper.jpg", asfileobj=False)
).convert("RGB")
image.thumbnail((160, 160))
image.save("picture.png")

# The maps of three points, well inside the largest regions; queries=[(x, y)] chooses your own.
result = dnlnet.attend("run", ["picture.png"], out="figures", page="explore.html")
print(f"written: {result.out}/picture.png and {result.page}, to be opened in a browser")

# The numbers themselves: while a model runs, `capture` keeps queries and keys of every block, of yours, too.
network = dnlnet.load("run").network
with dnlnet.capture(network) as blocks, torch.no_grad():
    network(torch.from_numpy(np.asarray(image)).permute(2, 0, 1)[None] / 255)
maps = blocks["block"].maps([(5, 5)])
print(f"pairwise {tuple(maps.pairwise.shape)}, unary {tuple(maps.unary.shape)}")
