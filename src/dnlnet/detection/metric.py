"""COCO's average precision of boxes and masks, by pycocotools, over any number of processes."""

# n detections of one image; H, W its size; K classes

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any, Literal

import numpy as np
from torch import Tensor

from dnlnet.errors import load_extra

Kind = Literal["box", "mask"]

_KINDS: dict[Kind, str] = {"box": "bbox", "mask": "segm"}  # our name -> pycocotools'
_STATISTICS = ("AP", "AP50", "AP75", "APs", "APm", "APl")  # the first ones of pycocotools, in its order
_ABSENT = -1  # pycocotools' score where there is nothing to find


@dataclass(frozen=True)
class Detection:
    """An object that was found: its category, how sure that is, its box (left, top, width, height) and its mask."""

    category: int
    score: float
    box: tuple[float, float, float, float]
    mask: str  # pycocotools' compressed run lengths


class AveragePrecision:
    """Detections, collected over any number of images, and their scores against the objects that are there.

    The score is over all images of the truth: one that was never updated counts as one in which nothing was found.

    Args:
        truth: images, categories and annotations in COCO's format; `InstanceImages.truth` gives them. Label k of a
            detection is the k-th category in the order of their numbers, from 1.

    >>> import torch
    >>> mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    >>> mask[0, 2:6, 2:6] = True
    >>> truth = {
    ...     "images": [{"id": 7, "height": 8, "width": 8}],
    ...     "categories": [{"id": 3, "name": "cat"}],
    ...     "annotations": [{"image_id": 7, "category_id": 3, "bbox": [2, 2, 4, 4], "area": 16, "iscrowd": 0,
    ...                      "segmentation": [[2, 2, 6, 2, 6, 6, 2, 6]]}],
    ... }
    >>> metric = AveragePrecision(truth)
    >>> metric.update(7, torch.tensor([[2.0, 2, 6, 6]]), torch.tensor([1]), torch.tensor([0.9]), mask)
    >>> round(metric.scores()["box AP"], 6), metric.known_scores()["mask APl"]
    (1.0, None)
    """

    def __init__(self, truth: Mapping[str, Any]) -> None:
        self.truth = truth
        self.sizes: dict[int, tuple[int, int]] = {
            image["id"]: (image["height"], image["width"]) for image in truth["images"]
        }
        self.categories: list[int] = sorted(category["id"] for category in truth["categories"])
        self.detections: dict[int, list[Detection]] = {}  # by image
        self._evaluated: dict[Kind, Any] = {}

    def update(self, image: int, boxes: Tensor, labels: Tensor, scores: Tensor, masks: Tensor) -> None:
        """Take in all detections of one image, in the pixels of its file.

        Args:
            image: its number in the truth.
            boxes: left, top, right, bottom, (n, 4).
            labels: 1..K, (n,).
            scores: the higher the surer, (n,).
            masks: not zero inside, (n, H, W) or (n, 1, H, W).
        """
        self._require_new(image)
        height, width = self.sizes[image]
        masks = masks.reshape(-1, *masks.shape[-2:])
        if masks.shape[1:] != (height, width):
            came = f"{masks.shape[1]} x {masks.shape[2]}"
            raise ValueError(f"masks of {came} for image {image} of {height} x {width} (height x width): resize them")
        counts = {"boxes": len(boxes), "labels": len(labels), "scores": len(scores), "masks": len(masks)}
        if len(set(counts.values())) > 1:
            raise ValueError(f"image {image} has {', '.join(f'{count} {name}' for name, count in counts.items())}")
        corners, sureness = boxes.double().tolist(), scores.double().tolist()
        self.detections[image] = [
            Detection(self._category(int(label)), score, (left, top, right - left, bottom - top), mask)
            for (left, top, right, bottom), label, score, mask in zip(
                corners, labels.tolist(), sureness, run_lengths(masks), strict=True
            )
        ]
        self._evaluated.clear()

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Take in what other processes found; `gather` gives the list of every process's detections.

        They are put in the order of the images, so that the score is the same for any number of processes.
        """
        everything: list[dict[int, list[Detection]]] = gather(self.detections)
        self.detections = {}
        for part in everything:
            for image, found in part.items():
                self._require_new(image)
                self.detections[image] = found
        self.detections = dict(sorted(self.detections.items()))
        self._evaluated.clear()

    def scores(self) -> dict[str, float]:
        """AP, AP50, AP75, and AP of small, medium and large objects, of boxes and of masks; nan if there are none."""
        return {
            f"{kind} {name}": math.nan if value == _ABSENT else float(value)
            for kind in _KINDS
            for name, value in zip(_STATISTICS, self._evaluation(kind).stats, strict=False)
        }

    def known_scores(self) -> dict[str, float | None]:
        """`scores` with None for nan, which JSON does not have."""
        return {name: None if math.isnan(value) else value for name, value in self.scores().items()}

    def class_scores(self, kind: Kind) -> list[float | None]:
        """AP of each class, in the order of the labels; None for a class that is in no image."""
        precision = self._evaluation(kind).eval["precision"][:, :, :, 0, -1]  # thresholds, recalls, K
        known = [of_class[of_class > _ABSENT] for of_class in np.moveaxis(precision, 2, 0)]
        return [float(values.mean()) if len(values) else None for values in known]

    def results(self) -> list[dict[str, Any]]:
        """All detections in COCO's format for results, in the order of the images."""
        return [
            {
                "image_id": image,
                "category_id": one.category,
                "score": one.score,
                "bbox": list(one.box),
                "segmentation": {"size": list(self.sizes[image]), "counts": one.mask},
            }
            for image, found in sorted(self.detections.items())
            for one in found
        ]

    def _evaluation(self, kind: Kind) -> Any:
        """pycocotools' own object, after it has done its work."""
        if kind not in self._evaluated:
            evaluator = load_extra("pycocotools.cocoeval", "detection").COCOeval
            with redirect_stdout(StringIO()):
                truth, found = (
                    _indexed(self.truth, self.truth["annotations"]),
                    _indexed(self.truth, self._found(kind)),
                )
                evaluation = evaluator(truth, found, _KINDS[kind])
                evaluation.evaluate()
                evaluation.accumulate()
                evaluation.summarize()
            self._evaluated[kind] = evaluation
        return self._evaluated[kind]

    def _found(self, kind: Kind) -> list[dict[str, Any]]:
        """The detections with their areas: whether one is small is decided by what is scored, its box or its mask."""
        results = self.results()
        if kind == "mask":
            area = load_extra("pycocotools.mask", "detection").area  # one by one: it fails on more than 255
            areas = [float(area(result["segmentation"])) for result in results]
        else:
            areas = [result["bbox"][2] * result["bbox"][3] for result in results]
        return [{**result, "area": size, "iscrowd": 0} for result, size in zip(results, areas, strict=True)]

    def _require_new(self, image: int) -> None:
        if image not in self.sizes:
            raise ValueError(f"image {image} is not among the {len(self.sizes)} images of the truth")
        if image in self.detections:
            raise ValueError(f"image {image} was given twice; all its detections must come at once")

    def _category(self, label: int) -> int:
        if not 1 <= label <= len(self.categories):
            raise ValueError(f"label {label} is outside 1..{len(self.categories)}")
        return self.categories[label - 1]


def run_lengths(masks: Tensor) -> list[str]:
    """Each of the masks (n, H, W) in pycocotools' compressed form.

    >>> import torch
    >>> run_lengths(torch.tensor([[[0, 1], [0, 1]]]))
    ['22']
    """
    inside = (masks != 0).cpu().numpy().astype(np.uint8)
    encode = load_extra("pycocotools.mask", "detection").encode
    return [encode(np.asfortranarray(mask))["counts"].decode("ascii") for mask in inside]


def _indexed(truth: Mapping[str, Any], annotations: Sequence[Mapping[str, Any]]) -> Any:
    """pycocotools' object of these annotations, numbered from 1: it takes a match with number 0 for none."""
    coco = load_extra("pycocotools.coco", "detection").COCO()
    # It writes into what it is given.
    numbered = [{**annotation, "id": number} for number, annotation in enumerate(annotations, start=1)]
    coco.dataset = {"images": truth["images"], "categories": truth["categories"], "annotations": numbered}
    coco.createIndex()
    return coco
