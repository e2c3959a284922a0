from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from coco_trees import HIGH, WIDE, annotation, coco_tree, rectangle, write_coco
from dnlnet.data.samples import Draw
from dnlnet.detection.data.coco import open_coco, open_coco_file
from dnlnet.detection.data.objects import InstanceImages
from dnlnet.detection.data.samples import InstanceSample, TestInstances, TrainingInstances
from dnlnet.detection.schema import InstanceData


@pytest.fixture
def images(tmp_path: Path) -> InstanceImages:
    return open_coco(coco_tree(tmp_path), "train2017")


def sized(short_side: int, long_side: int = 99, flip: float = 0.5) -> InstanceData:
    return InstanceData(short_side=short_side, long_side=long_side, flip=flip)


def equal(a: InstanceSample, b: InstanceSample) -> bool:
    targets = a.target.keys() == b.target.keys() and all(
        torch.equal(a.target[key], b.target[key]) for key in a.target
    )
    return torch.equal(a.image, b.image) and targets and a.name == b.name


def test_a_sample_has_the_format_of_detectors(images: InstanceImages) -> None:
    sample = TrainingInstances(images, sized(80, 120, flip=0))[Draw(0, epoch=0)]
    assert (sample.image.shape, sample.image.dtype) == ((3, 80, 120), torch.uint8)
    assert sample.name == str(images.images[0].path)
    assert {name: (tuple(value.shape), value.dtype) for name, value in sample.target.items()} == {
        "boxes": ((2, 4), torch.float32),
        "labels": ((2,), torch.int64),
        "masks": ((2, 80, 120), torch.uint8),
        "area": ((2,), torch.float32),
        "iscrowd": ((2,), torch.int64),
        "image_id": ((), torch.int64),
    }
    assert sample.target["boxes"].tolist() == [[20, 10, 60, 40], [80, 40, 100, 72]]
    assert sample.target["labels"].tolist() == [1, 2]
    assert int(sample.target["image_id"]) == 7


def test_image_boxes_and_masks_are_flipped_together(images: InstanceImages) -> None:
    plain, flipped = (TrainingInstances(images, sized(80, 120, flip=flip))[Draw(0, 0)] for flip in (0, 1))
    assert torch.equal(flipped.image, plain.image.flip(2))
    assert torch.equal(flipped.target["masks"], plain.target["masks"].flip(2))
    assert flipped.target["boxes"].tolist() == [[60, 10, 100, 40], [20, 40, 40, 72]]


def test_an_image_of_its_own_size_is_not_changed(images: InstanceImages) -> None:
    sample = TrainingInstances(images, sized(40, 60, flip=0))[Draw(0, 0)]
    np.testing.assert_array_equal(sample.image.permute(1, 2, 0).numpy(), images.pixels(0))
    np.testing.assert_array_equal(sample.target["masks"].numpy(), images.target(0).masks)


def test_boxes_fit_their_masks_at_any_size(images: InstanceImages) -> None:
    for short_side in (23, 57, 133):
        sample = TrainingInstances(images, sized(short_side, 999))[Draw(0, 3)]
        for box, mask in zip(sample.target["boxes"], sample.target["masks"], strict=True):
            rows, columns = mask.any(dim=1).nonzero(), mask.any(dim=0).nonzero()
            bounds = torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).squeeze(1)
            assert (bounds - box).abs().max() <= 1


def test_the_same_draw_gives_the_same_sample_and_another_does_not(images: InstanceImages) -> None:
    data = TrainingInstances(images, sized(40), seed=3)
    assert equal(data[Draw(1, 0)], data[Draw(1, 0)])
    other_seed = TrainingInstances(images, sized(40), seed=4)
    draws = [Draw(1, epoch) for epoch in range(6)]
    assert not all(equal(data[draw], other_seed[draw]) for draw in draws)
    assert not all(equal(data[draws[0]], data[draw]) for draw in draws)


def test_some_draws_are_flipped(images: InstanceImages) -> None:
    data = TrainingInstances(images, sized(40))
    same = [
        torch.equal(data[Draw(0, epoch)].target["boxes"], data[Draw(0, 0)].target["boxes"]) for epoch in range(30)
    ]
    assert 1 < sum(same) < 30


def test_samples_do_not_depend_on_the_number_of_workers(images: InstanceImages) -> None:
    data = TrainingInstances(images, sized(40))
    draws = [[Draw(0, epoch), Draw(1, epoch)] for epoch in range(2)]

    def batches(workers: int) -> list[InstanceSample]:
        loader = DataLoader(data, batch_sampler=draws, num_workers=workers, collate_fn=data.collate)
        return [sample for batch in loader for sample in batch]

    for alone, shared in zip(batches(0), batches(2), strict=True):
        assert equal(alone, shared)


def test_a_batch_keeps_images_of_different_sizes_apart(images: InstanceImages) -> None:
    data = TrainingInstances(images, sized(40))
    batch = data.collate([data[Draw(0, 0)], data[Draw(1, 0)]])
    assert [tuple(one.image.shape) for one in batch] == [(3, *WIDE), (3, *HIGH)]
    assert [len(one.target["labels"]) for one in batch] == [2, 1]
    assert [one.name for one in batch] == [str(image.path) for image in images.images[:2]]


def test_crowds_and_images_without_objects_are_not_drawn(images: InstanceImages) -> None:
    data = TrainingInstances(images, sized(40))
    assert (len(data), data.images.left_out) == (2, {"crowds": 1, "images without objects": 1})
    assert data[Draw(1, 0)].target["labels"].tolist() == [2]


def test_objects_that_vanish_when_shrunk_are_not_in_the_target(tmp_path: Path) -> None:
    entries = [annotation(1, 7, 3, (100.2, 100.2, 1.2, 1.2)), annotation(2, 7, 9, (10, 10, 200, 200))]
    images = open_coco_file(write_coco(tmp_path / "mine.json", tmp_path, {7: (300, 400)}, entries), tmp_path)
    assert len(images.for_training().images[0].instances) == 2
    sample = TrainingInstances(images, sized(30, flip=0))[Draw(0, 0)]
    assert sample.target["labels"].tolist() == [2]
    np.testing.assert_array_equal(sample.target["masks"][0].numpy(), rectangle((30, 40), (1, 1, 20, 20)))


def test_groups_are_wide_and_high(images: InstanceImages) -> None:
    assert TrainingInstances(images, sized(40)).groups == [1, 0]


def test_evaluation_has_every_image_with_its_own_size(images: InstanceImages) -> None:
    data = TestInstances(images, sized(80, 110))
    assert len(data) == 3
    sample = data[1]
    assert (sample.image.shape, sample.image.dtype) == ((3, 110, 73), torch.uint8)
    assert (sample.image_id, sample.size, sample.name) == (5, HIGH, str(images.images[1].path))


def test_the_long_side_limits_the_short_one() -> None:
    data = sized(800, 1333)
    assert data.resized((427, 640)) == (800, 1199)
    assert data.resized((640, 200)) == (1333, 417)
    assert data.resized((1, 4000)) == (1, 1333)


def test_invalid_arguments_and_missing_files_are_refused(images: InstanceImages, tmp_path: Path) -> None:
    with pytest.raises(IndexError, match=r"image 2 is outside 0\.\.1"):
        TrainingInstances(images, sized(40))[Draw(2, 0)]
    with pytest.raises(ValueError, match=r"seed .*-1"):
        TrainingInstances(images, sized(40), seed=-1)
    with pytest.raises(ValueError, match=r"flip\n.*input_value=2"):
        sized(40, flip=2)
    with pytest.raises(ValueError, match=r"long_side of 700 .*800"):
        sized(800, 700)
    with pytest.raises(ValueError, match=r"short_side\n.*input_value=0"):
        sized(0)
    (tmp_path / "train2017" / "000000000008.png").unlink()
    with pytest.raises(ValueError, match=r"000000000008\.png: no such file"):
        TrainingInstances(open_coco(tmp_path, "train2017"), sized(40))


def test_data_without_objects_is_refused(tmp_path: Path) -> None:
    crowd = annotation(1, 7, 3, (10, 5, 20, 15), iscrowd=1)
    images = open_coco_file(write_coco(tmp_path / "mine.json", tmp_path, {7: WIDE}, [crowd]), tmp_path)
    with pytest.raises(ValueError, match="mine has no object"):
        TrainingInstances(images, sized(40))
    assert len(TestInstances(images, sized(40))) == 1


def test_real_coco_gives_samples(real_data: Path) -> None:
    data = TrainingInstances(open_coco(real_data / "coco_micro", "train2017"), sized(160, 224))
    assert len(data) == 237
    for index in range(0, len(data), 12):
        sample = data[Draw(index, index)]
        boxes, masks = sample.target["boxes"], sample.target["masks"]
        assert masks.shape[1:] == sample.image.shape[1:]
        assert len(boxes) == len(masks) > 0
        assert bool(masks.flatten(1).any(dim=1).all())
        assert bool((boxes[:, 2:] > boxes[:, :2]).all())
