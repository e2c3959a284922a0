"""Share a trained model as a folder, and export it to ONNX for `onnx_inference.py`, which runs without dnlnet."""

from pathlib import Path

import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image

import dnlnet

# A model to start with. Yours comes from `dnlnet train` or from `dnlnet.load("a name on the hub")`.
short = ["schedule.iterations=10", "schedule.batch=4", "training.evaluate_every=10", "data.crop=[64, 64]"]
recipe = dnlnet.override(dnlnet.find_recipe("scenes-tiny-dnl"), short)
dnlnet.train(recipe, None, "run")
model = dnlnet.load("run")

# A folder with weights, recipe and model card. model.push_to_hub("you/scenes") would upload the same to the hub.
model.save_pretrained("shared")
print("shared:", ", ".join(sorted(path.name for path in Path("shared").iterdir())))
again = dnlnet.TrainedModel.from_pretrained("shared")

pixels = np.asarray(Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB").resize((96, 128)))
Image.fromarray(pixels).save("photo.png")
print("the same labels:", np.array_equal(model.predict(pixels).labels, again.predict(pixels).labels))

# Export to ONNX for any size, with attention maps of the central pixel as extra outputs, and compare the result.
exported = dnlnet.export("run", "scenes.onnx", queries=[(0.5, 0.5)])
print(
    f"{exported.path}: {exported.takes} -> {', '.join(exported.outputs)}; differs by at most {exported.largest:.0e}"
)
