"""Registry of the data sets with a class for each pixel."""

from dnlnet.data.catalog import DataSet, Flat, found_or_train
from dnlnet.data.labelled import LabelledImages
from dnlnet.segmentation.data import ade20k, camvid, cityscapes, folder, oxford_pets, pascal_context

_PASCAL_LAYOUT = (
    "VOC2010/JPEGImages/*.jpg with SegmentationClassContext/*.png and ImageSets/SegmentationContext/{train,val}.txt"
)

DATA_SETS: dict[str, DataSet[LabelledImages]] = {
    row.name: row
    for row in (
        DataSet(
            "cityscapes",
            tuple(cityscapes.SPLITS),
            cityscapes.cityscapes,
            "leftImg8bit/{train,val,train_extra}/<city>/*_leftImg8bit.png with gtFine/{train,val}/<city>/"
            "*_gtFine_labelIds.png, and gtCoarse/train_extra/<city>/*_gtCoarse_labelIds.png for the split coarse",
            cityscapes.CLASSES,
            signs=("leftImg8bit", "gtFine"),
            joined=("trainval",),
        ),
        DataSet(
            "ade20k",
            tuple(ade20k.SPLITS),
            ade20k.ade20k,
            "ADEChallengeData2016/images/{training,validation}/*.jpg with annotations/{training,validation}/*.png",
            ade20k.CLASSES,
            signs=("images/training", "annotations/training"),
        ),
        DataSet(
            "pascal_context",
            pascal_context.SPLITS,
            pascal_context.pascal_context,
            _PASCAL_LAYOUT,
            pascal_context.CLASSES,
        ),
        DataSet(
            "pascal_context_60",
            pascal_context.SPLITS,
            pascal_context.pascal_context_60,
            _PASCAL_LAYOUT,
            pascal_context.CLASSES_60,
            signs=("JPEGImages", "SegmentationClassContext"),
        ),
        DataSet(
            "camvid",
            camvid.SPLITS,
            camvid.camvid,
            "{train,val,test}/* with {train,val,test}annot/*.png, and perhaps {train,val,test}.txt to choose from "
            "them",
            camvid.CLASSES,
            signs=("train", "trainannot"),
        ),
        DataSet(
            "oxford_pets",
            oxford_pets.SPLITS,
            oxford_pets.oxford_pets,
            "images/*.jpg with annotations/trimaps/*.png and annotations/{trainval,test}.txt",
            oxford_pets.CLASSES,
            signs=("images", "annotations/trimaps"),
        ),
        DataSet(
            "folder",
            (),
            folder.folder,
            "images/<split>/** with masks/<split>/** of the same names, or images/* with masks/*, and classes.yaml",
            find_splits=found_or_train(folder.own_splits),
            signs=("classes.yaml", "images", "masks"),
            flat=Flat(folder.is_flat, folder.open_flat, "classes.yaml, images, masks"),
        ),
    )
}
