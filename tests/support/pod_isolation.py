"""Whether the pods of a cluster under test have namespaces of their own, which decides the paths and names that they see."""

from __future__ import annotations

from trainwright.api.kinds import NODE
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.registration import ISOLATION_CONDITION


def pods_are_isolated(cluster: Cluster) -> bool:
    (node,) = cluster.list(NODE).items
    return any(entry["type"] == ISOLATION_CONDITION and entry["status"] == "True" for entry in node["status"]["conditions"])
