"""Draw your first attention maps with a bundled model: figures and a page.

Replace the image with your own: a file, URL, Pillow image, array or tensor. The model is trained on photos of cats
and dogs.
"""

import dnlnet

model = dnlnet.load("pets")
photo = dnlnet.PHOTOS[0]

# Predict a class for every pixel.
found = model(photo)
print(found)
found.save("prediction.png")

# Show what two points attend to (x and y in pixels). The default points are inside the largest regions.
attended = model.attend(photo, queries=[(110, 130), (430, 250)])
attended.save("attention.png")
attended.save("explore.html")
print("written: prediction.png, attention.png, and explore.html (open it in a browser)")

# Get the numbers: `capture` records the queries and keys of the blocks of any model while it runs.
with dnlnet.capture(model.network) as blocks:
    model(photo)
maps = blocks["block"].maps([(30, 40)])
maps.save("maps.png", over=photo)
print(f"pairwise {tuple(maps.pairwise.shape)}, unary {tuple(maps.unary.shape)}, drawn in maps.png")
