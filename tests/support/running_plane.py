"""An embedded control plane of this process, and a runtime for it whose program runs once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trainwright.api.errors import AlreadyExists
from trainwright.api.objects import Obj
from trainwright.cluster.protocol import Cluster
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.runtimes import bundled_runtime


@contextmanager
def running_plane(folder: Path, **options: Any) -> Iterator[ControlPlane]:
    """Run a control plane with these options of ControlPlane, whose home is in the folder."""
    plane = ControlPlane(Home(folder / "home"), **{"gates": FeatureGates(), **options})
    plane.start()
    try:
        yield plane
    finally:
        plane.stop(2)


def create_runtime_once(cluster: Cluster) -> str:
    """Create `runtime_once` unless it exists, and return its name."""
    with suppress(AlreadyExists):
        cluster.create(runtime_once())
    return "once"


def runtime_once() -> Obj:
    """Build the runtime `once`: as torch-distributed, but a program that fails is not tried again, and has 2 s to stop."""
    runtime = bundled_runtime("torch-distributed")
    assert runtime is not None
    runtime["metadata"]["name"] = "once"
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = 0
    job["template"]["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
    return runtime
