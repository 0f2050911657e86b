"""The client interface to a Kubernetes API, and ways to connect to one."""

from trainwright.cluster.connect import NoCluster, connect, start_embedded
from trainwright.cluster.protocol import Cluster, Listing, WatchEvent
from trainwright.cluster.reflector import Reflector

__all__ = ["Cluster", "Listing", "NoCluster", "Reflector", "WatchEvent", "connect", "start_embedded"]
