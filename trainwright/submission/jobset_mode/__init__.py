"""TrainJobs on a cluster that has only JobSet: each is its JobSet, which carries what a TrainJob has and a JobSet has not."""

from trainwright.submission.jobset_mode.jobset_cluster import JobSetCluster

__all__ = ["JobSetCluster"]
