"""One scheduling cycle: the node with what is left of its resources, and why a pod cannot be bound to it."""

from __future__ import annotations

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.controllers.queue import Key
from trainwright.controlplane.controllers.scheduler import messages
from trainwright.controlplane.controllers.scheduler.node_filters import obstacle
from trainwright.controlplane.controllers.scheduler.node_resources import NodeResources
from trainwright.controlplane.controllers.scheduler.scheduler_cache import PodInfo


class Cycle:
    """The node and its resources in one scheduling cycle."""

    def __init__(self, cluster: Cluster, node: Obj, resources: NodeResources):
        self._cluster, self._node, self.resources, self.node_name = cluster, node, resources, name_of(node)
        self._claims: dict[Key, bool] = {}

    def reason(self, entry: PodInfo) -> str:
        """Return why this pod cannot be bound, or an empty string."""
        if why := self.misplaced(entry):
            return why
        insufficient = self.resources.insufficient(entry.requests)
        if not insufficient:
            return ""
        is_permanent = bool(self.resources.exceeding_capacity(entry.requests))
        return messages.insufficient(insufficient, is_permanent=is_permanent, pod_spec=entry.pod["spec"])

    def misplaced(self, entry: PodInfo) -> str:
        """Return why this pod cannot run on the node regardless of resources, or an empty string."""
        spec = entry.pod["spec"]
        for volume in spec.get("volumes") or []:
            claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if claim is not None and not self._has_claim((entry.key[0], claim)):
                return messages.unbound(f'persistentvolumeclaim "{claim}" not found')
        why = obstacle(spec, self._node)
        return messages.wrong_node(why, spec) if why else ""

    def _has_claim(self, key: Key) -> bool:
        if key not in self._claims:
            try:
                self._cluster.get(CLAIM, key[1], key[0])
                self._claims[key] = True
            except NotFound:
                self._claims[key] = False
        return self._claims[key]
