"""A queue for the single-node cluster: suspended TrainJobs in a queue are resumed when all their requests fit its quota."""

from trainwright.controlplane.controllers.local_queue.reconciler import local_queue
from trainwright.controlplane.controllers.local_queue.settings import QueueError, parse_queues, queues_map

__all__ = ["QueueError", "local_queue", "parse_queues", "queues_map"]
