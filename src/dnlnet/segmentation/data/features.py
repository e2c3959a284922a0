"""Training samples made of a frozen backbone's features, which are computed once and cached.

Features are computed in several views of an image, each with a scale and an optional flip. Training draws random
crops of the feature maps. Features are float16, cached or not, so that both give the same training to the bit.
"""

# C channels, h, w size of a grid, H, W size of the image

import json
import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from dnlnet.backbones.bfloat16 import InBfloat16, bfloat16_problem
from dnlnet.backbones.fold import fold_batch_norms
from dnlnet.backbones.pixels import normalised
from dnlnet.data.classes import IGNORE
from dnlnet.data.images import open_rgb
from dnlnet.data.labelled import LabelledImages
from dnlnet.data.samples import ImageSamples, require_seed
from dnlnet.engine.checkpoint import save_tensors
from dnlnet.files import checksum, make_folder, write_json
from dnlnet.layout import convert_to_channels_last
from dnlnet.progress import SILENT, Progress
from dnlnet.segmentation.frozen import FrozenSegmentor
from dnlnet.segmentation.schema import View
from dnlnet.segmentation.stages import Features, Grid

FORMAT = 2  # version of the cache; raise it when its files or the way of reading images change


class FeatureSample(NamedTuple):
    """Features on a grid, the labels of its pixels, and the image file."""

    features: Features  # float16
    labels: Tensor  # (stride h, stride w) of a crop, or (H, W) of a whole image
    name: str


class Source(Protocol):
    """Source of features, computed or cached."""

    def __call__(self, image: Path, view: View) -> list[Tensor]:
        """Return the map (C_i, h_i, w_i) of each stage in float16."""
        ...


class Extractor:
    """Feature extractor in evaluation mode, with folded batch norms and channels last.

    Args:
        network: Network whose backbone is copied and whose stages are used.
        settings: Backbone settings of the recipe, which identify the features.
        precision: Precision of training. bfloat16 is also used here, and identifies the features, if the CPU has it.
    """

    def __init__(self, network: FrozenSegmentor, settings: Mapping[str, Any], precision: str = "float32") -> None:
        half = precision == "bfloat16" and bfloat16_problem("cpu") is None
        settings = {**settings, "precision": precision} if half else dict(settings)  # as in earlier versions
        digest = sha256(json.dumps([FORMAT, settings, network.stages], sort_keys=True).encode())
        for name, tensor in network.backbone.state_dict().items():
            digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
        self.key, self.stages, self.settings = digest.hexdigest()[:16], network.stages, settings
        backbone: nn.Module = network.backbone.eval()
        backbone = convert_to_channels_last(fold_batch_norms(backbone, torch.zeros(1, 3, 64, 64)))
        self.backbone = InBfloat16(backbone) if half else backbone

    @torch.inference_mode()
    def __call__(self, image: Path, view: View) -> list[Tensor]:
        """Return the map (C_i, h_i, w_i) of each stage in float16."""
        seen = view.image(open_rgb(image), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(seen)).permute(2, 0, 1)[None]
        maps = self.backbone(normalised(pixels).contiguous(memory_format=torch.channels_last))
        return [maps[stage][0].half().contiguous() for stage in self.stages]


class FeatureCache:
    """Features in a folder, with one memory-mapped file per image and view. Files are written atomically.

    A hash of the backbone's weights and settings names the folder, and a hash of the image names each file. Entries
    are therefore never stale, and runs with other heads, seeds and crops share them.

    Args:
        folder: Folder of all caches.
        extractor: Extractor of missing features.
    """

    def __init__(self, folder: Path, extractor: Extractor) -> None:
        self.folder, self.extractor = folder / extractor.key, extractor
        self._contents: dict[Path, str] = {}

    def fill(
        self,
        images: Sequence[Path],
        views: Sequence[View],
        progress: Progress = SILENT,
    ) -> None:
        """Compute missing features. Report the disk space they take first, and raise if it is not available.

        Several processes may fill the same cache at once. Each works in its own random order and skips files that
        another process has written.
        """
        wanted = [(image, view) for image in images for view in views]
        missing = [(image, view) for image, view in wanted if not _is_whole(self.path(image, view))]
        if not missing:
            progress.say(f"features: all {len(wanted)} maps of {len(images)} images are in the cache")
            return
        Random().shuffle(missing)  # a separate generator, so that the cache does not affect other random numbers
        make_folder(self.folder)
        write_json(self.folder / "about.json", {"format": FORMAT, **self.extractor.settings})
        first = self._write(*missing[0])
        needed = int(first / missing[0][1].scale ** 2 * sum(view.scale**2 for _, view in missing[1:]))
        free = shutil.disk_usage(self.folder).free
        seen = "one view" if len(views) == 1 else f"{len(views)} views"
        what = f"features of {len(images)} images in {seen} take about {max(needed, 1e6) / 1e6:,.0f} MB"
        if needed > free:
            raise OSError(f"{what}, but {self.folder.parent} has {free / 1e6:,.0f} MB; give another --cache DIR")
        progress.say(f"{what}; {len(wanted) - len(missing)} of {len(wanted)} maps are in the cache")
        with progress.track("features", len(missing), start=1) as done:
            for image, view in missing[1:]:
                if not _is_whole(self.path(image, view)):
                    self._write(image, view)
                done.advance()

    def __call__(self, image: Path, view: View) -> list[Tensor]:
        """Return the map (C_i, h_i, w_i) of each stage in float16."""
        path = self.path(image, view)
        try:
            with safe_open(path, "pt") as file:
                return [file.get_tensor(str(stage)) for stage in self.extractor.stages]
        except (SafetensorError, OSError) as error:
            raise OSError(f"{path}: this part of the cache cannot be read ({error}); run the command again") from None

    def path(self, image: Path, view: View) -> Path:
        """Return the file with the features of an image in a view."""
        if image not in self._contents:
            self._contents[image] = checksum(image)[:32]
        return self.folder / f"{self._contents[image]}-{view}.safetensors"

    def _write(self, image: Path, view: View) -> int:
        maps = self.extractor(image, view)
        path = self.path(image, view)
        save_tensors(path, {str(stage): x for stage, x in zip(self.extractor.stages, maps, strict=True)}, {})
        return path.stat().st_size


def _is_whole(path: Path) -> bool:
    try:
        with safe_open(path, "pt") as file:
            return bool(file.keys())
    except (SafetensorError, OSError):
        return False


class FeatureCrops(ImageSamples[LabelledImages, FeatureSample]):
    """Random crops of the features of labelled images, with the labels of their pixels.

    Each crop depends only on the seed, the epoch and the index, so that a run can resume.

    Args:
        images: Labelled images. Raises if they are incomplete.
        source: Source of the features.
        views: Views; one is drawn for each sample.
        crop: Height and width in grid positions.
        grid: Grid of the network.
        seed: Random seed of the run.
    """

    def __init__(
        self,
        images: LabelledImages,
        source: Source,
        views: Sequence[View],
        crop: tuple[int, int],
        grid: Grid,
        seed: int = 0,
    ) -> None:
        self.crop, self.grid, self.seed = crop, grid, require_seed(seed)
        self.source, self.views = source, tuple(views)
        super().__init__(images.require_complete())

    def __getitem__(self, draw: tuple[int, int]) -> FeatureSample:
        index, epoch = draw
        rng = np.random.default_rng((self.seed, epoch, index))
        view = self.views[int(rng.integers(len(self.views)))]
        maps, labels = maps_and_labels(self.images, self.source, index, view)
        top, left = (
            int(rng.integers(max(0, whole - length) + 1))
            for whole, length in zip(maps[int(self.grid.detail)].shape[-2:], self.crop, strict=True)
        )
        stride = self.grid.stride
        window = labels.new_full([length * stride for length in self.crop], IGNORE)
        y, x = top * stride, left * stride
        pixels = labels[y : y + window.shape[0], x : x + window.shape[1]]
        window[: pixels.shape[0], : pixels.shape[1]] = pixels
        features = self.grid.window(maps, (top, left), self.crop)
        return FeatureSample(features, window, str(self.images.pairs[index].image))


class WholeFeatures(ImageSamples[LabelledImages, FeatureSample]):
    """Features of whole labelled images, for evaluation."""

    def __init__(self, images: LabelledImages, source: Source, grid: Grid) -> None:
        super().__init__(images.require_complete())
        self.source, self.grid = source, grid

    def __getitem__(self, index: int) -> FeatureSample:
        maps, labels = maps_and_labels(self.images, self.source, index, View(1.0))
        return FeatureSample(self.grid.whole(maps), labels, str(self.images.pairs[index].image))


def maps_and_labels(images: LabelledImages, source: Source, index: int, view: View) -> tuple[list[Tensor], Tensor]:
    """Return the map of each stage in float16, and the labels (H, W), of an image in a view."""
    raw = images.aligned(index, images.image_size(index), images.open_labels(index))
    seen = view.image(Image.fromarray(images.decoded(index, raw)), Image.Resampling.NEAREST)
    return source(images.pairs[index].image, view), torch.from_numpy(np.array(seen))
