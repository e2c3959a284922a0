"""Train on your own folder of images and masks, evaluate the model, and predict a picture, all in Python.

python own_folder.py first creates a small folder of generated scenes; with your own data, leave that part out.
"""

from pathlib import Path

import numpy as np
from PIL import Image

import dnlnet
from dnlnet.recipes import find_recipe, override
from dnlnet.recipes.train import train_recipe
from dnlnet.segmentation.data.scenes import CLASSES, scene

# The layout: images/SPLIT/NAME.png, masks/SPLIT/NAME.png with class numbers, and classes.yaml with their names.
data = Path("my_data")
for split, count in (("train", 24), ("val", 4)):
    for part in ("images", "masks"):
        (data / part / split).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        image, labels = scene((len(split), number), size=64)
        pixels = (255 * image).round().astype(np.uint8).transpose(1, 2, 0)
        Image.fromarray(pixels).save(data / "images" / split / f"{number}.png")
        Image.fromarray(labels.astype(np.uint8)).save(data / "masks" / split / f"{number}.png")
(data / "classes.yaml").write_text(f"names: [{', '.join(CLASSES.names)}]\n")

# A recipe describes the whole run. This one is tiny; for photographs, start from camvid-mbv2-dnl.
settings = ["data.name=folder", "data.crop=[48, 48]", "schedule.iterations=20", "training.evaluate_every=20"]
recipe = override(find_recipe("scenes-tiny-dnl"), settings)


def print_progress(step):
    """Called after every iteration."""
    if step.iteration % 5 == 0:
        print(f"iteration {step.iteration} of {step.iterations}: loss {step.losses['main']:.3f}")


# Writes the models and a log. Called again, it resumes where it stopped.
outcome = train_recipe(recipe, data, Path("my_run"), progress=print_progress)
print(f"mIoU on val: {outcome.best:.2f}")

model = dnlnet.load("my_run")  # the best model of the run
prediction = model.predict(data / "images" / "val" / "0.png")
print("shares:", {name: round(share, 2) for name, share in prediction.shares().items()})
Image.fromarray(prediction.overlay()).save("prediction.png")
print("written: prediction.png")
