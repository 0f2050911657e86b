"""Processes of containers as this machine sees them: in a container of its own PID namespace they have other ids."""

from __future__ import annotations

import subprocess
from pathlib import Path

from support.waiting import eventually
from trainwright.controlplane.node.container import POD_MARK


def host_pid(inner: int, pod_uid: str) -> int:
    """The id on this machine of the process that has the id `inner` in a pod."""
    return eventually(lambda: _find(inner, pod_uid), 10, f"process {inner} of pod {pod_uid}")


def has_ended(pid: int) -> bool:
    """Whether a process of this machine is gone, or is a zombie that nobody has waited for."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip()[:1] in ("", "Z")


def _find(inner: int, pod_uid: str) -> int:
    if not Path("/proc/self").exists():  # no Linux, no namespaces
        return inner
    mark = f"{POD_MARK}={pod_uid}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ids = next(line for line in (entry / "status").read_text("utf-8").splitlines() if line.startswith("NSpid:"))
            if int(ids.split()[-1]) == inner and mark in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
        except (OSError, StopIteration):  # it has ended
            continue
    return 0
