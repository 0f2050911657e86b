"""One interface to a Kubernetes API, and the ways to get hold of one."""

from trainwright.cluster.connect import NoCluster, connect, start_embedded
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent
from trainwright.cluster.reflector import Reflector
from trainwright.cluster.submission_mode import connect_for_jobs

__all__ = ["Cluster", "Listing", "NoCluster", "Reflector", "WatchEvent", "connect", "connect_for_jobs", "start_embedded"]
