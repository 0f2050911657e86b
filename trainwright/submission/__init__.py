"""Submission modes: whether jobs are submitted as TrainJobs or as JobSets, with which fields, and whether a controller is active."""

from trainwright.submission.connect import connect_for_jobs
from trainwright.submission.jobs_client import JobsClient

__all__ = ["JobsClient", "connect_for_jobs"]
