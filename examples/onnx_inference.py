"""Colour an image by class without PyTorch. Usage: python onnx_inference.py model.onnx image.jpg colours.png"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image

session = onnxruntime.InferenceSession(sys.argv[1])
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
width, height = (side if isinstance(side, int) else None for side in reversed(session.get_inputs()[0].shape[2:]))
image = Image.open(sys.argv[2]).convert("RGB")
pixels = np.asarray(image.resize((width or image.width, height or image.height)), np.float32)
logits = session.run(["logits"], {"image": pixels.transpose(2, 0, 1)[None]})[0][0]
labels = logits.argmax(axis=0)
Image.fromarray(np.asarray(classes["palette"], np.uint8)[labels]).save(sys.argv[3])
shares = np.bincount(labels.ravel(), minlength=len(classes["names"])) / labels.size
print(", ".join(f"{classes['names'][k]} {shares[k]:.0%}" for k in shares.argsort()[::-1] if shares[k] > 0))
