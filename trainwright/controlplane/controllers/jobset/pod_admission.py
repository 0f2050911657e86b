"""JobSet's pod webhook: modifies pods of JobSets before their creation, according to the node of their leader."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.api.errors import NotFound
from trainwright.api.kinds import NODE, POD
from trainwright.api.objects import Obj, is_deleting, labels_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.jobset.placement import leader_selector, place_pod


def pod_admission(cluster: Cluster) -> Callable[[Obj], None]:
    """Return a function that modifies a pod, or raises Forbidden if it must wait for its leader's node."""

    def domain_of(pod: Obj, topology: str) -> str | None:
        namespace, selector = leader_selector(pod)
        leaders = [leader for leader in cluster.list(POD, namespace, label_selector=selector).items if not is_deleting(leader)]
        node = leaders[0]["spec"].get("nodeName") if leaders else None
        if not node:
            return None
        try:
            return labels_of(cluster.get(NODE, node)).get(topology)
        except NotFound:
            return None

    return lambda pod: place_pod(pod, domain_of)
