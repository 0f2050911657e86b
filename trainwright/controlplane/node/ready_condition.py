"""Keeps the node's condition Ready true: whoever reads the Node must not see Ready while it takes no pods."""

from __future__ import annotations

import logging
from collections.abc import Callable

from trainwright.api.kinds import NODE
from trainwright.cluster.protocol import Cluster
from trainwright.controlplane.node.registration import NODE_NAME, ready_condition

log = logging.getLogger(__name__)


class ReadyCondition:
    """Writes the condition at each `look` after which `problems` have changed. Not thread-safe."""

    def __init__(self, cluster: Cluster, problems: Callable[[], list[str]]):
        self._cluster, self._problems = cluster, problems
        self._told: list[str] = []
        """The registration has written that there are none."""

    def look(self) -> None:
        """Write the condition if it has changed. Raises ApiError."""
        problems = self._problems()
        if problems == self._told:
            return
        if problems:
            log.error("event=node_not_ready problems=%r", "; ".join(problems))
        others = [each for each in self._cluster.get(NODE, NODE_NAME)["status"]["conditions"] if each["type"] != "Ready"]
        status = {"conditions": [ready_condition(problems), *others]}
        self._cluster.patch(NODE, NODE_NAME, {"status": status}, subresource="status")
        self._told = problems
