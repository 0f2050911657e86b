"""The scheduler of the single-node cluster, with gang scheduling: either all pods of a training job are started or none."""

from trainwright.controlplane.controllers.scheduler.reconciler import scheduler

__all__ = ["scheduler"]
