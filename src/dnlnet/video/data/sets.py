"""Video data sets by name."""

from dnlnet.data.catalog import DataSet, Flat, found_or_train
from dnlnet.video.data import kinetics, ucf101, video_folder
from dnlnet.video.data.videos import LabelledVideos

_PACKAGE = ("av", "video")  # not needed for folders of frames


DATA_SETS: dict[str, DataSet[LabelledVideos]] = {
    row.name: row
    for row in (
        DataSet(
            "kinetics",
            kinetics.SPLITS,
            kinetics.kinetics,
            "{train,val,test}.csv with a path and a label per line, and optionally classes.txt with the names",
            class_count=400,
            signs=("train.csv",),
            package=_PACKAGE,
            holds="videos",
        ),
        DataSet(
            "ucf101",
            (),
            ucf101.ucf101,
            "classInd.txt, trainlist0N.txt and testlist0N.txt for the splits train0N and test0N, with "
            "videos/<class>/*.avi or UCF-101/<class>/*.avi",
            fold_splits=ucf101.fold_splits,
            class_count=101,
            signs=("classInd.txt", "trainlist0*.txt"),
            package=_PACKAGE,
            find_splits=lambda root: ucf101.own_splits(root) or ["train01"],
            holds="videos",
        ),
        DataSet(
            "video_folder",
            (),
            video_folder.video_folder,
            "<split>/<class>/* with videos or folders of frames, or <class>/* with videos",
            find_splits=found_or_train(video_folder.own_splits),
            signs=("train/*/*",),
            holds="videos",
            flat=Flat(video_folder.is_flat, video_folder.open_flat, "folders with videos"),
        ),
    )
}
