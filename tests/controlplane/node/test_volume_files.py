"""The files of a volume: what their owner may do with them follows from the pod, and nobody else may do anything."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.node.volumes import VolumeMaker

SCRIPT = "#!/bin/sh\necho ran\n"


@pytest.fixture
def volumes(tmp_path: Path) -> Iterator[VolumeMaker]:
    store = Store(":memory:")
    cluster = EmbeddedCluster(ResourceServer(store))
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c", "namespace": "default"},
            "data": {"run": SCRIPT, "text": "t"},
        }
    )
    yield VolumeMaker(cluster, tmp_path / "claims", lambda *_: "token")
    cluster.close()
    store.close()


def made(volumes: VolumeMaker, folder: Path, volume: dict[str, Any]) -> Path:
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"volumes": [{"name": "v", **volume}]}}
    return volumes.make(pod, folder)["v"]


@pytest.mark.parametrize(
    ("volume", "modes"),
    [
        ({"configMap": {"name": "c"}}, {"run": 0o600, "text": 0o600}),
        ({"configMap": {"name": "c", "defaultMode": 0o755}}, {"run": 0o700, "text": 0o700}),
        ({"configMap": {"name": "c", "items": [{"key": "run", "path": "bin/x", "mode": 0o555}]}}, {"bin/x": 0o500}),
        ({"projected": {"defaultMode": 0o400, "sources": [{"configMap": {"name": "c"}}]}}, {"run": 0o400, "text": 0o400}),
    ],
)
def test_modes(volume: dict[str, Any], modes: dict[str, int], volumes: VolumeMaker, tmp_path: Path) -> None:
    place = made(volumes, tmp_path / "pod", volume)
    assert {path: (place / path).stat().st_mode & 0o777 for path in modes} == modes


def test_a_script_of_a_config_map_can_be_run(volumes: VolumeMaker, tmp_path: Path) -> None:
    place = made(volumes, tmp_path / "pod", {"configMap": {"name": "c", "defaultMode": 0o755}})
    assert subprocess.run(["run"], env={"PATH": f"{place}{os.pathsep}/bin"}, capture_output=True, text=True).stdout == "ran\n"
