"""What waiting costs: many TrainJobs waited for in one process, through a real API server on this machine.

For each number of waiters: requests to begin and a minute after that, the time from sending a status change until
`wait_for` returns, and the memory that the waiters add. Peer: the same waiters, each with a watch of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.api.kinds import NAMESPACE, TRAINJOB
from trainwright.cluster import connect
from trainwright.jobs import wait_for, watching

READY = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
DONE = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


class Counting:
    """A cluster that counts what is asked of it."""

    def __init__(self, cluster: Any):
        self._cluster, self.requests, self._lock = cluster, 0, threading.Lock()
        for verb in ("get", "list", "watch"):
            setattr(self, verb, self._counted(getattr(cluster, verb)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def _counted(self, ask: Any) -> Any:
        def counted(*arguments: Any, **more: Any) -> Any:
            with self._lock:
                self.requests += 1
            return ask(*arguments, **more)

        return counted


def measured(cluster: Any, namespace: str, waiters: int, seconds: float) -> dict[str, float]:
    """One row of the table."""
    jobs = [_made(cluster, namespace, number) for number in range(waiters)]
    counting, ended = Counting(cluster), {}
    before = _resident()
    begun = [threading.Event() for _ in jobs]
    threads = [
        threading.Thread(target=_wait, args=(counting, *pair, ended), daemon=True) for pair in zip(jobs, begun, strict=True)
    ]
    for thread in threads:
        thread.start()
    for event in begun:
        event.wait(60)
    time.sleep(min(10.0, 2 + waiters / 100))  # until the last connection stands
    to_begin, memory = counting.requests, _resident() - before
    time.sleep(seconds)
    a_minute = (counting.requests - to_begin) * 60 / seconds
    changed = {}
    for job in jobs:
        name = job["metadata"]["name"]
        status = {"status": {"conditions": [DONE], "jobsStatus": READY}}
        changed[name] = time.monotonic()
        cluster.patch(TRAINJOB, name, status, namespace, subresource="status")
    for thread in threads:
        thread.join(60)
    late = sorted(ended[name] - at for name, at in changed.items())
    return {
        "waiters": waiters,
        "requests_to_begin": to_begin,
        "requests_a_minute": round(a_minute, 1),
        "p50_ms": round(1000 * late[len(late) // 2], 1),
        "p99_ms": round(1000 * late[min(len(late) - 1, int(len(late) * 0.99))], 1),
        "added_mib": round(memory, 1),
    }


def _wait(cluster: Any, job: dict[str, Any], begun: threading.Event, ended: dict[str, float]) -> None:
    wait_for(cluster, job, tell=lambda _: begun.set())
    ended[job["metadata"]["name"]] = time.monotonic()


def _made(cluster: Any, namespace: str, number: int) -> dict[str, Any]:
    """A job that nobody acts on: it is another manager's."""
    spec = {"runtimeRef": {"name": "torch-distributed"}, "managedBy": "kueue.x-k8s.io/multikueue"}
    metadata = {"name": f"job-{number}", "namespace": namespace}
    made: dict[str, Any] = cluster.create(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
    )
    return made


def _resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@contextlib.contextmanager
def each_alone() -> Iterator[None]:
    """The peer."""
    shared = watching._Together
    watching._Together = watching._Alone  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        watching._Together = shared  # type: ignore[misc]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--waiters", type=int, nargs="+", default=[1, 100, 1000])
    arguments.add_argument("--seconds", type=float, default=40.0)
    arguments.add_argument("--most-alone", type=int, default=100, help="the peer is run up to so many waiters")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            cluster = connect(embedded=home)
            for waiters in chosen.waiters:
                for how, mode in (("shared", contextlib.nullcontext()), ("alone", each_alone())):
                    if how == "alone" and waiters > chosen.most_alone:
                        continue
                    namespace = f"{how}-{waiters}"
                    cluster.create({"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": namespace}})
                    with mode:
                        row = measured(cluster, namespace, waiters, chosen.seconds)
                    print(json.dumps({"watch": how, **row}), flush=True)
        finally:
            subprocess.run(
                [sys.executable, "-m", "trainwright.cli", "down", "--home", str(home)], check=False, capture_output=True
            )


if __name__ == "__main__":
    main()
