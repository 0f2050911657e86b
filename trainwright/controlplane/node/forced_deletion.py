"""What is said of a pod whose object is gone while its containers still run: it was deleted without a grace period."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.node.container import latest_run
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, containers_of
from trainwright.controlplane.node.lifecycle.decision import stop_message
from trainwright.controlplane.node.lifecycle.events import PodEvent


def killings(pod: Obj, folder: Path) -> Iterator[PodEvent]:
    """Yield the events of the containers that run and are about to be killed. `folder` is that of the pod."""
    for spec, role in containers_of(pod):
        run = latest_run(spec["name"], folder)
        if run is not None and run.started_at() is not None and run.termination() is None:
            state = ContainerState(spec["name"], role, spec)
            yield events.about(state, "Killing", stop_message(state))
