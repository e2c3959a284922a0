"""Semantic segmentation of generated scenes, small enough to train while one waits."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dnlnet.segmentation.data.scenes import CLASSES, Scenes
from dnlnet.segmentation.metric import ConfusionMatrix
from dnlnet.segmentation.tiny import TinySegmentor

STEPS = 400
BATCH = 8
SIZE = 96
LEARNING_RATE = 3e-3

# The scenes of this seed are never trained on, so that scores of all runs compare.
HELD_OUT_SEED = 0
HELD_OUT_COUNT = 64

Images = Dataset[tuple[Tensor, Tensor]]
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Outcome:
    """A trained model, its counts on the held-out scenes before and after, and how long the training took."""

    model: TinySegmentor
    before: ConfusionMatrix
    after: ConfusionMatrix
    seconds: float


def run(
    variant: str | None = "dnl",
    steps: int = STEPS,
    seed: int = 0,
    size: int = SIZE,
    progress: Progress | None = None,
) -> Outcome:
    """Make a `TinySegmentor`, train it on `steps` batches of new scenes, and score it on scenes it has not seen.

    Args:
        variant: attention of its block, a row of `dnlnet.VARIANTS`; None for no block.
        steps: batches to train on.
        seed: of the first weights and of the training scenes; the held-out scenes are the same for all.
        size: height and width of the scenes.
        progress: called after each step with the steps done and the loss.

    >>> outcome = run(steps=2, size=32)
    >>> outcome.after.classes
    6
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    training = Scenes(steps * BATCH, size, seed=HELD_OUT_SEED + 1 + seed)
    held_out = held_out_scenes(size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TinySegmentor(len(CLASSES), variant=variant)
    before = evaluate(model, held_out)
    start = perf_counter()
    train(model, training, progress)
    return Outcome(model, before, seconds=perf_counter() - start, after=evaluate(model, held_out))


def held_out_scenes(size: int = SIZE) -> Scenes:
    """The scenes that no run is trained on."""
    return Scenes(HELD_OUT_COUNT, size, seed=HELD_OUT_SEED)


def train(model: nn.Module, data: Images, progress: Progress | None = None) -> None:
    """One pass over the data in order, with AdamW and a learning rate that rises once and falls to zero."""
    batches = DataLoader(data, batch_size=BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=len(batches))
    model.train()
    for step, (images, labels) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(images).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step, loss.item())


@torch.no_grad()
def evaluate(model: nn.Module, data: Images) -> ConfusionMatrix:
    """Counts of the model's predictions over all scenes of the data."""
    matrix = ConfusionMatrix(len(CLASSES))
    model.eval()
    for images, labels in DataLoader(data, batch_size=BATCH):
        matrix.update(model(images).logits.argmax(dim=1), labels)
    return matrix
