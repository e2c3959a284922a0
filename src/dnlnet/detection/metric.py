"""COCO's average precision of boxes and masks, computed by pycocotools."""

# n detections of one image; H, W its size; K classes

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, Literal

import numpy as np
from torch import Tensor

from dnlnet.errors import load_extra

Kind = Literal["box", "mask"]

_KINDS: dict[Kind, str] = {"box": "bbox", "mask": "segm"}  # our names -> pycocotools' names
_STATISTICS = ("AP", "AP50", "AP75", "APs", "APm", "APl")  # the first of pycocotools, in its order
_ABSENT = -1  # pycocotools' score if there is nothing to find


class AveragePrecision:
    """Average precision of detections in all images of the ground truth.

    An image without `update` counts as one without detections.

    Args:
        truth: Images, categories and annotations in COCO's format (see `InstanceImages.truth`). Label k of a
            detection, from 1, is the k-th category in the order of their ids.

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
        self.detections: dict[int, list[dict[str, Any]]] = {}  # image id -> rows of COCO's results format
        self._evaluated: dict[Kind, Any] = {}

    def update(self, image: int, boxes: Tensor, labels: Tensor, scores: Tensor, masks: Tensor) -> None:
        """Add all detections of one image, in pixels of its file.

        Args:
            image: Image id in the ground truth.
            boxes: Left, top, right, bottom, (n, 4).
            labels: 1..K, (n,).
            scores: Confidence, (n,).
            masks: Nonzero inside, (n, H, W) or (n, 1, H, W).
        """
        self._require_new(image)
        size = self.sizes[image]
        masks = masks.reshape(-1, *masks.shape[-2:])
        if masks.shape[1:] != size:
            sizes = "masks of {} x {} for image {} of {} x {} (height x width)"
            raise ValueError(f"{sizes.format(*masks.shape[1:], image, *size)}; resize them")
        counts = {"boxes": len(boxes), "labels": len(labels), "scores": len(scores), "masks": len(masks)}
        if len(set(counts.values())) > 1:
            raise ValueError(f"image {image} has {', '.join(f'{count} {name}' for name, count in counts.items())}")
        outside = labels[(labels < 1) | (labels > len(self.categories))]
        if len(outside):
            raise ValueError(f"label {int(outside[0])} is outside 1..{len(self.categories)}")
        rows = zip(
            boxes.double().tolist(), labels.tolist(), scores.double().tolist(), run_lengths(masks), strict=True
        )
        self.detections[image] = [
            {
                "image_id": image,
                "category_id": self.categories[int(label) - 1],
                "score": score,
                "bbox": [left, top, right - left, bottom - top],
                "segmentation": {"size": list(size), "counts": mask},
            }
            for (left, top, right, bottom), label, score, mask in rows
        ]
        self._evaluated.clear()

    def merge(self, gather: Callable[[Any], list[Any]]) -> None:
        """Add the detections of other processes; `gather` returns those of every process.

        Detections are sorted by image, so the scores do not depend on the number of processes.
        """
        parts: list[dict[int, list[dict[str, Any]]]] = gather(self.detections)
        self.detections = {}
        for part in parts:
            for image, found in part.items():
                self._require_new(image)
                self.detections[image] = found
        self.detections = dict(sorted(self.detections.items()))
        self._evaluated.clear()

    def scores(self) -> dict[str, float]:
        """Return AP, AP50, AP75 and AP by size (APs, APm, APl) of boxes and masks; nan if there are no objects."""
        return {
            f"{kind} {name}": math.nan if value == _ABSENT else float(value)
            for kind in _KINDS
            for name, value in zip(_STATISTICS, self._evaluation(kind).stats, strict=False)
        }

    def known_scores(self) -> dict[str, float | None]:
        """Return the scores with None for nan, which JSON does not have."""
        return {name: None if math.isnan(value) else value for name, value in self.scores().items()}

    def class_scores(self, kind: Kind) -> list[float | None]:
        """Return AP of each class, in the order of the labels; None for a class without objects."""
        precision = self._evaluation(kind).eval["precision"][:, :, :, 0, -1]  # thresholds, recalls, K
        known = [of_class[of_class > _ABSENT] for of_class in np.moveaxis(precision, 2, 0)]
        return [float(values.mean()) if len(values) else None for values in known]

    def results(self) -> list[dict[str, Any]]:
        """Return all detections in COCO's results format, sorted by image."""
        return [row for _, found in sorted(self.detections.items()) for row in found]

    def _evaluation(self, kind: Kind) -> Any:
        """Evaluate with pycocotools, once per kind."""
        if kind not in self._evaluated:
            evaluator = load_extra("pycocotools.cocoeval", "detection").COCOeval
            with redirect_stdout(StringIO()):
                truth = _indexed(self.truth, self.truth["annotations"])
                evaluation = evaluator(truth, _indexed(self.truth, self._found(kind)), _KINDS[kind])
                evaluation.evaluate()
                evaluation.accumulate()
                evaluation.summarize()
            self._evaluated[kind] = evaluation
        return self._evaluated[kind]

    def _found(self, kind: Kind) -> list[dict[str, Any]]:
        """Return the detections with the area of the box or mask, which decides whether they are small."""
        results = self.results()
        if kind == "mask":
            area = load_extra("pycocotools.mask", "detection").area  # singly, because it fails on more than 255
            areas = [float(area(result["segmentation"])) for result in results]
        else:
            areas = [result["bbox"][2] * result["bbox"][3] for result in results]
        return [{**result, "area": size, "iscrowd": 0} for result, size in zip(results, areas, strict=True)]

    def _require_new(self, image: int) -> None:
        if image not in self.sizes:
            raise ValueError(f"image {image} is not among the {len(self.sizes)} images of the ground truth")
        if image in self.detections:
            raise ValueError(f"image {image} was given twice; pass all its detections in one update")


def run_lengths(masks: Tensor) -> list[str]:
    """Return the masks (n, H, W) as run lengths compressed by pycocotools.

    >>> import torch
    >>> run_lengths(torch.tensor([[[0, 1], [0, 1]]]))
    ['22']
    """
    inside = (masks != 0).cpu().numpy().astype(np.uint8)
    encode = load_extra("pycocotools.mask", "detection").encode
    return [encode(np.asfortranarray(mask))["counts"].decode("ascii") for mask in inside]


def _indexed(truth: Mapping[str, Any], annotations: Sequence[Mapping[str, Any]]) -> Any:
    """Return pycocotools' index of annotations, numbered from 1 because a match with number 0 counts as none."""
    coco = load_extra("pycocotools.coco", "detection").COCO()
    # A copy, because pycocotools modifies its input.
    numbered = [{**annotation, "id": number} for number, annotation in enumerate(annotations, start=1)]
    coco.dataset = {"images": truth["images"], "categories": truth["categories"], "annotations": numbered}
    coco.createIndex()
    return coco
