"""How the run of a container is, as far as it decides whether there is, or will be, a log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from trainwright.api.objects import Obj, named
from trainwright.jobs.state.pods import container_states


class ContainerState(NamedTuple):
    """`name` is waiting, running or terminated; `reason` may be empty. `is_over`: it will not run again."""

    name: str
    reason: str
    restarts: int
    is_over: bool
    exit_code: int | None


def container_state(pod: Obj, container: str) -> ContainerState:
    """Return the state of a container; one that the status does not mention yet is waiting."""
    entry = named(container_states(pod), container) or {}
    phase = str((pod.get("status") or {}).get("phase") or "")
    has_pod_ended = phase in ("Succeeded", "Failed")
    restarts = int(entry.get("restartCount") or 0)
    for name in ("running", "terminated", "waiting"):
        details = (entry.get("state") or {}).get(name)
        if details is not None:
            code = details.get("exitCode") if name == "terminated" else None
            is_over = has_pod_ended or (name == "terminated" and not _may_restart(pod, container, code))
            return ContainerState(name, str(details.get("reason") or ""), restarts, is_over, code)
    return ContainerState("waiting", str((pod.get("status") or {}).get("reason") or ""), restarts, has_pod_ended, None)


def _may_restart(pod: Obj, container: str, exit_code: int | None) -> bool:
    init = named((pod.get("spec") or {}).get("initContainers"), container)
    if init is not None and init.get("restartPolicy") == "Always":  # a sidecar
        return True
    policy = (pod.get("spec") or {}).get("restartPolicy") or "Always"
    return policy != "Never" and (exit_code != 0 or (policy == "Always" and init is None))
