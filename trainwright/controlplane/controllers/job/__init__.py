"""The batch/v1 Job controller: creates pods with completion indexes and backoff, and counts every finished pod exactly once.

Source of the behaviour: Kubernetes' Job controller (reference jobset-and-job.md, section 3).
"""

from trainwright.controlplane.controllers.job.reconciler import job_controller

__all__ = ["job_controller"]
