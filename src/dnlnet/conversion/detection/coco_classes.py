"""COCO's 80 classes, for checkpoints that do not name their classes."""

from dnlnet.data.classes import Classes, spread_colours

_NAMES = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign,
parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag,
tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard,
tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot,
hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote,
keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear,
hair drier, toothbrush
"""
_UNUSED = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # category numbers without objects

COCO_CLASSES = Classes(
    tuple(name.strip() for name in _NAMES.split(",")),
    spread_colours(80),
    tuple(number for number in range(1, 91) if number not in _UNUSED),
)
