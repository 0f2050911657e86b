"""The batch/v1 Job controller: pods with completion indexes, back-off, and a count of every pod that ends - once.

Source of the behaviour: Kubernetes' Job controller (reference jobset-and-job.md, section 3).
"""

from trainwright.controlplane.controllers.job.reconciler import job_controller

__all__ = ["job_controller"]
