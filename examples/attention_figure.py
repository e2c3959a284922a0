"""Your first attention maps: an included model, an image, figures and a page.

Replace the image by your own: a file, a URL, a Pillow image, an array or a tensor. The model knows street scenes,
seen from a car.
"""

import dnlnet

model = dnlnet.load("street")
photo = dnlnet.PHOTOS[0]

# Predict a class for every pixel.
found = model(photo)
print(found)
found.save("prediction.png")

# Show what two points attend to (x and y in pixels). By default, points well inside the largest regions are used.
attended = model.attend(photo, queries=[(330, 330), (500, 120)])
attended.save("attention.png")
attended.save("explore.html")
print("written: prediction.png, attention.png, and explore.html (open it in a browser)")

# Get the numbers: while any model runs, `capture` keeps the queries and keys of its blocks.
with dnlnet.capture(model.network) as blocks:
    model(photo)
maps = blocks["block"].maps([(30, 40)])
maps.save("maps.png", over=photo)
print(f"pairwise {tuple(maps.pairwise.shape)}, unary {tuple(maps.unary.shape)}, drawn in maps.png")
