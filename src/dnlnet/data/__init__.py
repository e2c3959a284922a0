"""Files, images, classes and problems that the data sets of all tasks share."""
