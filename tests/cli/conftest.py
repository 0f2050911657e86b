"""The command line in this process, and one embedded cluster for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import factories
import pytest
import yaml
from support.command_line import run  # noqa: F401  fixture
from support.running_plane import running_plane

from trainwright.embedded.plane import ControlPlane


@pytest.fixture
def trainjob() -> Callable[..., dict[str, Any]]:
    """Builds TrainJobs as people write them: without a namespace."""
    return partial(factories.trainjob, namespace="", script="true")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Documents as a file; returns its name."""

    def to_file(*documents: Any, name: str = "manifest.yaml") -> str:
        (tmp_path / name).write_text(yaml.safe_dump_all(documents), "utf-8")
        return str(tmp_path / name)

    return to_file


@pytest.fixture(scope="module")
def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as control_plane:
        yield control_plane


@pytest.fixture
def plane(shared_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    """The module's cluster, named by KUBECONFIG."""
    monkeypatch.delenv("TRAINWRIGHT_HOME")  # it would be used instead
    monkeypatch.setenv("KUBECONFIG", os.fspath(shared_plane._home.kubeconfig))
    return shared_plane
