"""Share a trained model as a folder, and write it as ONNX: `onnx_inference.py` then needs nothing of this package."""

from pathlib import Path

import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image

import dnlnet

# A model to begin with. Yours comes from `dnlnet train`, or from `dnlnet.load("a name on the hub")`.
short = ["schedule.iterations=10", "schedule.batch=4", "training.evaluate_every=10", "data.crop=[64, 64]"]
recipe = dnlnet.override(dnlnet.find_recipe("scenes-tiny-dnl"), short)
dnlnet.train(recipe, None, "run")
model = dnlnet.load("run")

# A folder with the weights, the recipe and a card; model.push_to_hub("you/scenes") would put the same on the hub.
model.save_pretrained("shared")
print("shared:", ", ".join(sorted(path.name for path in Path("shared").iterdir())))
again = dnlnet.TrainedModel.from_pretrained("shared")

pixels = np.asarray(Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB").resize((96, 128)))
Image.fromarray(pixels).save("photo.png")
print("the same labels:", np.array_equal(model.predict(pixels).labels, again.predict(pixels).labels))

# ONNX for any size, with what the pixel in the middle attends to as further outputs; it is run and compared.
exported = dnlnet.export("run", "scenes.onnx", free=("batch", "height", "width"), queries=[(0.5, 0.5)])
print(
    f"{exported.path}: {exported.takes} -> {', '.join(exported.outputs)}; differs by at most {exported.largest:.0e}"
)
