"""A small queue in front of the one-node cluster: suspended TrainJobs that name it start when their whole request fits its quota."""

from trainwright.controlplane.controllers.local_queue.reconciler import local_queue
from trainwright.controlplane.controllers.local_queue.settings import CONFIG_MAP_NAME, QueueError, parse_queues, queues_map

__all__ = ["CONFIG_MAP_NAME", "QueueError", "local_queue", "parse_queues", "queues_map"]
