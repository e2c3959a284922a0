"""Share a trained model as a folder, and export it to ONNX: `onnx_inference.py` runs it without this package."""

from pathlib import Path

import numpy as np
from PIL import Image

import dnlnet
from dnlnet.export.model import export_model
from dnlnet.recipes import find_recipe, override
from dnlnet.recipes.train import train_recipe
from dnlnet.segmentation.data.scenes import scene

# A model to start with. Yours comes from `dnlnet train`, or from `dnlnet.load("a name on the hub")`.
short = ["schedule.iterations=10", "schedule.batch=4", "training.evaluate_every=10", "data.crop=[64, 64]"]
train_recipe(override(find_recipe("scenes-tiny-dnl"), short), None, Path("run"), report=lambda _: None)
model = dnlnet.load("run")

# A folder with weights, recipe and model card; model.push_to_hub("you/scenes") would upload the same to the hub.
model.save_pretrained("shared")
print("shared:", ", ".join(sorted(path.name for path in Path("shared").iterdir())))
again = dnlnet.TrainedModel.from_pretrained("shared")

pixels = (scene(seed=7, size=(96, 128))[0].transpose(1, 2, 0) * 255).astype(np.uint8)
Image.fromarray(pixels).save("scene.png")
print("the same labels:", np.array_equal(model.predict(pixels).labels, again.predict(pixels).labels))

# ONNX for any size, with the attention maps of the middle pixel as further outputs; the file is run and compared.
exported = export_model(model.file, Path("scenes.onnx"), free=("batch", "height", "width"), queries=[(0.5, 0.5)])
print(
    f"{exported.path}: {exported.takes} -> {', '.join(exported.outputs)}; differs by at most {exported.largest:.0e}"
)
