"""Fixture: a cluster that has JobSet, Jobs and a node, and of Trainer nothing; `way` is the kubeconfig to it.

Runtimes are those that come with Trainwright, and `once`, whose programs are not tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from servers.faulty_api import FaultyApi

from support.running_plane import running_plane, runtime_once
from support.without_environments import home_without_environments
from trainwright.embedded.home import Home
from trainwright.embedded.options import ControllerName, FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.runtimes import bundled

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
        runtime_once_in_catalogue(folder),
        plane_of_jobsets(folder) as plane,
        FaultyApi(folder, plane._home.kubeconfig, NO_FAULTS, jobset_only=True) as api,
    ):
        yield JobSetOnly(plane, api)


def plane_of_jobsets(folder: Path, *, trainjobs: bool = False) -> AbstractContextManager[ControlPlane]:
    """Run a control plane without the controller of TrainJobs, or with it."""
    controllers = [name for name in ControllerName if trainjobs or name != ControllerName.trainjob]
    home_without_environments(Home(folder / "home"))
    return running_plane(folder, gates=FeatureGates(TrainJobStatus=False), controllers=controllers)


@contextmanager
def runtime_once_in_catalogue(folder: Path) -> Iterator[None]:
    """The catalogue of this process has `once` as well."""
    (folder / "runtimes").mkdir()
    (folder / "runtimes" / "once.yaml").write_text(yaml.safe_dump(runtime_once()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(bundled.FOLDERS, str(folder / "runtimes"))
        bundled._catalogue.cache_clear()
        yield
    bundled._catalogue.cache_clear()
