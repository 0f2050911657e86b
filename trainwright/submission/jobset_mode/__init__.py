"""Jobset mode: represents each TrainJob by its JobSet, which stores the TrainJob's spec in an annotation."""

from trainwright.submission.jobset_mode.jobset_cluster import JobSetCluster

__all__ = ["JobSetCluster"]
