"""Your first attention maps: a model that comes with the package, a photograph, figures and a page.

Put the name of your own picture in place of the photograph: a file, a URL, a Pillow image, an array or a tensor. The
model knows street scenes, seen from a car.
"""

import dnlnet

model = dnlnet.load("street")
photo = dnlnet.PHOTOS[0]

# What it finds: every pixel gets a class.
found = model(photo)
print(found)
found.save("prediction.png")

# What it attends to from two points, x and y in pixels; without `queries`, points well inside the largest regions.
attended = model.attend(photo, queries=[(330, 330), (500, 120)])
attended.save("attention.png")
attended.save("explore.html")
print("written: prediction.png, attention.png, and explore.html, to be opened in a browser")

# The numbers themselves: while a model runs, `capture` keeps queries and keys of every block, of yours, too.
with dnlnet.capture(model.network) as blocks:
    model(photo)
maps = blocks["block"].maps([(30, 40)])
maps.save("maps.png", over=photo)
print(f"pairwise {tuple(maps.pairwise.shape)}, unary {tuple(maps.unary.shape)}, drawn in maps.png")
