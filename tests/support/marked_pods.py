"""A pod whose processes are found by a mark in their environment, and what is seen of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from factories import pod

from trainwright.api.kinds import POD
from trainwright.cluster.protocol import Cluster


def marked_pod(script: str, restart: str = "Never") -> dict[str, Any]:
    """A pod whose processes carry a variable by which they are found."""
    env = [{"name": "MARK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    return pod(script=script, container={"env": env}, restartPolicy=restart, terminationGracePeriodSeconds=1)


def runs(count: Path) -> int:
    return len(count.read_text().splitlines()) if count.exists() else 0


def main_status(cluster: Cluster) -> dict[str, Any]:
    (status,) = (cluster.get(POD, "p", "default").get("status") or {}).get("containerStatuses") or [{}]
    return dict(status)


def is_running(cluster: Cluster) -> bool:
    return "running" in main_status(cluster).get("state", {})


def phase(cluster: Cluster) -> str:
    return str((cluster.get(POD, "p", "default").get("status") or {}).get("phase"))


def processes_of(uid: str) -> list[int]:
    return processes(lambda entry: f"MARK={uid}\0".encode() in (entry / "environ").read_bytes())


def processes(is_wanted: Callable[[Path], bool]) -> list[int]:
    """Those whose folder in /proc is wanted."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if is_wanted(entry):
                found.append(int(entry.name))
        except OSError:  # it has ended
            continue
    return found
