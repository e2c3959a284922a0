"""File formats of benchmark servers: label numbers and file names."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dnlnet.segmentation.data.cityscapes import LABEL_IDS


@dataclass(frozen=True)
class Submission:
    """File format of a benchmark.

    Args:
        numbers: Number to write for each class.
        name: Function from an image's name without suffix to the name of its output file.
    """

    numbers: tuple[int, ...]
    name: Callable[[str], str]

    def encode(self, labels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the benchmark's numbers (H, W) for classes (H, W).

        >>> SUBMISSIONS["cityscapes"].encode(np.array([[0, 13]], dtype=np.uint8)).tolist()
        [[7, 26]]
        """
        if labels.max(initial=0) >= len(self.numbers):
            raise ValueError(f"class {labels.max()} is none of the {len(self.numbers)} of this benchmark")
        encoded: NDArray[np.uint8] = np.array(self.numbers, dtype=np.uint8)[labels]
        return encoded


def _cityscapes_name(stem: str) -> str:
    """Return `<city>_<sequence>_<frame>_pred_labelIds` for the name of a leftImg8bit image."""
    parts = re.fullmatch(r"([^_]+_\d{6}_\d{6})(_leftImg8bit)?", stem)
    if parts is None:
        raise ValueError(f"{stem}: is no name of Cityscapes, such as berlin_000000_000019_leftImg8bit")
    return f"{parts[1]}_pred_labelIds"


SUBMISSIONS: Mapping[str, Submission] = {
    "cityscapes": Submission(LABEL_IDS, _cityscapes_name),
    "ade20k": Submission(tuple(range(1, 151)), str),
    "pascal_context": Submission(tuple(range(1, 60)), str),
    "pascal_context_60": Submission(tuple(range(60)), str),
}
