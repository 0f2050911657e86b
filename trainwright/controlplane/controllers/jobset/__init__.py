"""The JobSet controller: one file per policy, with pure functions of a JobSet and its Jobs that `reconciler` calls in order.

Source of the behaviour: JobSet 0.13 (reference jobset-and-job.md, sections 1 and 2).
"""

from trainwright.controlplane.controllers.jobset.placement import pod_admission
from trainwright.controlplane.controllers.jobset.reconciler import jobset_controller

__all__ = ["jobset_controller", "pod_admission"]
