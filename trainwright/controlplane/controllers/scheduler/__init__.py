"""The scheduler of the one-node cluster: which pods run now, all pods of a training job or none of them."""

from trainwright.controlplane.controllers.scheduler.reconciler import scheduler

__all__ = ["scheduler"]
