"""The component wait_train_job."""

from trainwright.components.wait_train_job.component import wait_train_job

__all__ = ["wait_train_job"]
