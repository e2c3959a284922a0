"""Registry of the data sets with a box and an outline for each object."""

from dnlnet.data.catalog import DataSet, Flat, found_or_train
from dnlnet.detection.data import coco, oxford_pets
from dnlnet.detection.data.objects import InstanceImages

_PACKAGE = ("pycocotools", "detection")


DATA_SETS: dict[str, DataSet[InstanceImages]] = {
    row.name: row
    for row in (
        DataSet(
            "coco",
            coco.SPLITS,
            coco.open_coco,
            "annotations/instances_{train2017,val2017}.json with {train2017,val2017}/*.jpg; or a JSON file of the "
            "same format, with --images for the folder of its images",
            quick=False,
            signs=("annotations/instances_train2017.json", "train2017"),
            package=_PACKAGE,
            open_file=coco.open_coco_file,
        ),
        DataSet(
            "coco_folder",
            (),
            coco.open_coco_folder,
            "annotations/<split>.json in COCO's format, with the images in <split>/ or images/; or one JSON file of "
            "any name with images/",
            find_splits=found_or_train(lambda root: sorted(path.stem for path in root.glob("annotations/*.json"))),
            quick=False,
            signs=("annotations/*.json",),
            package=_PACKAGE,
            open_file=coco.open_coco_file,
            flat=Flat(coco.is_flat, coco.open_flat, "annotations/*.json, images"),
        ),
        DataSet(
            "oxford_pets_objects",
            oxford_pets.SPLITS,
            oxford_pets.oxford_pets,
            "images/*.jpg with annotations/trimaps/*.png and annotations/{trainval,test}.txt, as for oxford_pets",
            oxford_pets.CLASSES,
            quick=False,
            signs=("images", "annotations/trimaps"),
            package=_PACKAGE,
        ),
    )
}
