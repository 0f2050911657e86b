"""Fixture: a cluster that has JobSet, Jobs and a node, and of Trainer nothing; `way` is the kubeconfig to it.

Runtimes are those that come with Trainwright, and `once`, whose programs are not tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from servers.faulty_api import FaultyApi

from support.without_environments import home_without_environments
from trainwright.controlplane.controller_names import ControllerName
from trainwright.controlplane.gates import FeatureGates
from trainwright.controlplane.home import Home
from trainwright.controlplane.plane import ControlPlane
from trainwright.runtimes import bundled, bundled_runtime

NO_FAULTS = -1


@dataclass
class JobSetOnly:
    plane: ControlPlane
    api: FaultyApi

    @property
    def way(self) -> Path:
        return self.api.kubeconfig


@pytest.fixture(scope="module")
def jobset_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobSetOnly]:
    folder = tmp_path_factory.mktemp("jobset-only")
    with (
        runtime_once(folder),
        running_plane(folder) as plane,
        FaultyApi(folder, plane._home.kubeconfig, NO_FAULTS, jobset_only=True) as api,
    ):
        yield JobSetOnly(plane, api)


@contextmanager
def running_plane(folder: Path, *, trainjobs: bool = False) -> Iterator[ControlPlane]:
    controllers = [name for name in ControllerName if trainjobs or name != ControllerName.trainjob]
    home = home_without_environments(Home(folder / "home"))
    plane = ControlPlane(home, gates=FeatureGates(TrainJobStatus=False), controllers=controllers)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop(2)


@contextmanager
def runtime_once(folder: Path) -> Iterator[None]:
    """The catalogue of this process has `once` as well."""
    runtime = bundled_runtime("torch-distributed") or {}
    runtime["metadata"]["name"] = "once"
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = 0
    job["template"]["spec"]["restartPolicy"] = "Never"
    (folder / "runtimes").mkdir()
    (folder / "runtimes" / "once.yaml").write_text(yaml.safe_dump(runtime))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(bundled.FOLDERS, str(folder / "runtimes"))
        bundled._catalogue.cache_clear()
        yield
    bundled._catalogue.cache_clear()
