"""Your first attention maps: train a tiny net on generated scenes, look at a picture, write attention.png.

python attention_figure.py [PICTURE] looks at your own picture instead of a generated one.
"""

import sys

import numpy as np
import torch

from dnlnet.analysis import capture
from dnlnet.analysis.figures import attention_figure
from dnlnet.analysis.panels import save_figure
from dnlnet.analysis.views import Picture, View
from pathlib import Path
from dnlnet.data.scenes import CLASSES, scene
from dnlnet.tasks.scenes import run
import time
t=time.time()
outcome = run("dnl", steps=int(sys.argv[1]), size=int(sys.argv[2]),seed=int(sys.argv[4]))
print(time.time()-t, outcome.after.miou())
s=int(sys.argv[3])
image, labels = scene((0,s), 96)
with capture(outcome.model.eval()) as blocks, torch.no_grad():
    prediction = outcome.model(torch.from_numpy(image)[None]).logits.argmax(dim=1)[0]
pixels = (255 * image).round().astype(np.uint8).transpose(1, 2, 0)
picture = Picture("a generated scene", pixels, [View("DNL", blocks["block"], prediction.to(torch.uint8).numpy())], labels.astype(np.uint8), CLASSES)
save_figure(attention_figure(picture, picture.interior_points()), Path(f"/tmp/ex/a_{sys.argv[1]}_{sys.argv[2]}_{sys.argv[3]}_{sys.argv[4]}.png"))
