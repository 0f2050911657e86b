"""The objects of a TrainJob: as they are built, with who contributed each value, and as they are in the cluster."""
