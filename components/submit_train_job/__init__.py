"""The component submit_train_job."""

from trainwright.components.submit_train_job.component import submit_train_job

__all__ = ["submit_train_job"]
