"""Pods and states of containers for the tests of the lifecycle, around one moment: NOW."""

from __future__ import annotations

from typing import Any

from trainwright.api.times import parse_time
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role, Run, Termination

NOW_TEXT = "2026-11-24T12:00:00Z"
NOW = parse_time(NOW_TEXT).timestamp()
Obj = dict[str, Any]


def pod_with(policy: str = "Never", status: Obj | None = None, metadata: Obj | None = None, **spec: Any) -> Obj:
    """A pod whose containers are those of the states that it is looked at with."""
    names = {"name": "p", "namespace": "n", "uid": "u", **(metadata or {})}
    return {"metadata": names, "spec": {"restartPolicy": policy, **spec}, "status": status or {}}


def deleted_pod(policy: str = "Never", grace: int = 30, **spec: Any) -> Obj:
    """A pod that is deleted at NOW: its timestamp is when the grace is over."""
    over = parse_time(NOW_TEXT).timestamp() + grace
    stamp = f"2026-11-24T12:{int(over - NOW) // 60:02}:{int(over - NOW) % 60:02}Z"
    return pod_with(policy, metadata={"deletionTimestamp": stamp, "deletionGracePeriodSeconds": grace}, **spec)


def state(role: Role = Role.MAIN, run: Run | None = None, name: str = "", spec: Obj | None = None, **more: Any) -> ContainerState:
    """A state of a container, which is called after its role."""
    name = name or role.value[0]
    policy = {"restartPolicy": "Always"} if role is Role.SIDECAR else {}
    return ContainerState(name, role, {"name": name, "image": "image:1", **policy, **(spec or {})}, run, **more)


def main(run: Run | None = None, name: str = "m", spec: Obj | None = None, **more: Any) -> ContainerState:
    return state(Role.MAIN, run, name, spec, **more)


def identity(attempt: int = 0, name: str = "m") -> str:
    return f"process://u/{name}/{attempt}"


def running(attempt: int = 0, name: str = "m", since: float = 5.0) -> Run:
    return Run(attempt, identity(attempt, name), NOW - since)


def ended(code: int = 0, attempt: int = 0, backoff: float = 0.0, ago: float = 0.0, ran: float = 1.0, **more: Any) -> Run:
    """A run that ended `ago` seconds before NOW, after `ran` seconds."""
    finished = NOW - ago
    how = Termination(code, finished, finished - ran, **more)
    return Run(attempt, identity(attempt), finished - ran, how, backoff)
