"""Train on your own folder of images and masks, score the model, and predict an image.

The first part draws a small folder of discs and squares; skip it for your own data.
"""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import dnlnet

# The layout: images/SPLIT/NAME.png, masks/SPLIT/NAME.png with class numbers, and classes.yaml with their names.
data = Path("my_data")
for split, count in (("train", 24), ("val", 4)):
    for part in ("images", "masks"):
        (data / part / split).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        rng = np.random.default_rng((len(split), number))
        mask = Image.new("L", (64, 64))
        for label, shape in ((1, ImageDraw.Draw(mask).ellipse), (2, ImageDraw.Draw(mask).rectangle)):
            left, top = (int(place) for place in rng.integers(0, 36, 2))
            shape((left, top, left + 28, top + 28), fill=label)
        colours = np.array([(90, 90, 90), (200, 80, 60), (60, 100, 200)])[np.asarray(mask)]
        pixels = np.clip(colours + rng.normal(0, 25, colours.shape), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(data / "images" / split / f"{number}.png")
        mask.save(data / "masks" / split / f"{number}.png")
(data / "classes.yaml").write_text("names: [ground, disc, square]\n")

# A recipe defines a run. This one is tiny, for drawings; for photos, use folder-mbv2_frozen-dnl as it is.
settings = ["data.name=folder", "data.crop=[48, 48]", "schedule.iterations=20", "training.evaluate_every=20"]
recipe = dnlnet.override(dnlnet.find_recipe("scenes-tiny-dnl"), settings)


# Write the models and a log, and show a progress bar. A second call resumes where the first stopped.
outcome = dnlnet.train(recipe, data, "my_run")
print(f"mIoU on val: {outcome.best:.2f}")

model = dnlnet.load("my_run")  # the best model of the run
prediction = model.predict(data / "images" / "val" / "0.png")
print("shares:", {name: round(share, 2) for name, share in prediction.shares().items()})
Image.fromarray(prediction.overlay()).save("prediction.png")
print("written: prediction.png")
