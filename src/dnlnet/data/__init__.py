"""Files, images, classes and samples, shared by the data sets of all tasks.

Files:

- `files`: kinds of files, Unicode forms of their names, lines of list files
- `images`: image files, URLs and arrays as upright RGB
- `downloads`: files from URLs
- `parsing`: JSON, YAML and pydantic with one sentence per error
- `problems`: problem of one file, and the error that carries it

Data sets:

- `catalog`: data sets by name, their splits and expected folders
- `classes`: names and colours of classes
- `decoders`: from the values in label files to classes
- `labelled`: images with label maps
- `scenes`: generated images with label maps
- `fingerprint`: checksums that identify the data of a run
- `check`: reports on the files of a split

Samples:

- `augmentation`: random crops
- `samples`: training crops and whole images as tensors

Inputs and outputs of commands:

- `inputs`: files to predict
- `outputs`: base class of the writers of predictions
"""
