"""Evictions for local storage: which limits there are, which is told, and that a verdict outlives the node's process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest
from factories import pod

from trainwright.controlplane.node.container_context import NodeServices
from trainwright.controlplane.node.eviction import PERIOD_SECONDS, Eviction, folder_bytes, pod_storage_limit
from trainwright.controlplane.node.lifecycle.events import PodEvent

Obj = dict[str, Any]
KIB = 1024


class Services:
    """What an eviction needs of the node's services."""

    def __init__(self) -> None:
        self.events = self
        self.recorded: list[PodEvent] = []

    def record(self, pod: Obj, event: PodEvent) -> None:
        self.recorded.append(event)


def container(name: str, limit: str | None = None, **more: Any) -> Obj:
    return {"name": name, **({"resources": {"limits": {"ephemeral-storage": limit}}} if limit else {}), **more}


def sidecar(name: str, limit: str | None = None) -> Obj:
    return container(name, limit, restartPolicy="Always")


def pod_of(*containers: Obj, init: tuple[Obj, ...] = (), volumes: tuple[Obj, ...] = ()) -> Obj:
    return pod(metadata={"uid": "u"}, containers=list(containers), initContainers=list(init), volumes=list(volumes))


def empty_dir(limit: str | None = None, **more: Any) -> Obj:
    return {"name": "v", "emptyDir": {**({"sizeLimit": limit} if limit else {}), **more}}


def write(path: Path, kib: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(KIB) * kib)


def message(found: Obj, folder: Path) -> str:
    """Why a pod of which nothing is known yet is evicted."""
    (folder / "evicted").unlink(missing_ok=True)
    return Eviction(found, folder, cast(NodeServices, Services())).message(0.0, is_running=True)


@pytest.mark.parametrize(
    ("containers", "init", "limit"),
    [
        ([container("a")], (), None),
        ([container("a", "1Mi")], (), "1Mi"),
        ([container("a", "1Mi"), container("b", "512Ki")], (), "1536Ki"),
        ([container("a", "1Mi")], (sidecar("s", "1Mi"),), "2Mi"),
        ([container("a", "3Mi")], (container("i", "2Mi"),), "3Mi"),
        ([container("a", "1Mi")], (sidecar("s", "1Mi"), container("i", "4Mi")), "5Mi"),
        ([container("a", "1Mi")], (container("i", "4Mi"), sidecar("s", "1Mi")), "4Mi"),
    ],
)
def test_pod_storage_limit_adds_the_limits_of_concurrent_containers(
    containers: list[Obj], init: tuple[Obj, ...], limit: str | None
) -> None:
    found = pod_storage_limit(pod_of(*containers, init=init))
    assert (None if found is None else str(found)) == limit


def test_an_empty_dir_over_its_limit(tmp_path: Path) -> None:
    write(tmp_path / "volumes/v/deep/file", 64)
    over = 'Usage of EmptyDir volume "v" exceeds the limit "{}". '
    assert message(pod_of(container("a"), volumes=(empty_dir("32Ki"),)), tmp_path) == over.format("32Ki")
    assert message(pod_of(container("a"), volumes=(empty_dir("32768"),)), tmp_path) == over.format("32768")
    assert message(pod_of(container("a"), volumes=(empty_dir("0.03125Mi"),)), tmp_path) == over.format("32Ki")
    for fits in (empty_dir("1Mi"), empty_dir("0"), empty_dir(), empty_dir("1Ki", medium="Memory")):
        assert message(pod_of(container("a"), volumes=(fits,)), tmp_path) == ""


def test_a_pod_over_the_limit_of_its_containers(tmp_path: Path) -> None:
    for name in ("a", "b", "i"):
        write(tmp_path / f"containers/{name}/0/log", 24)
    write(tmp_path / "volumes/v/file", 64)
    over = "Pod ephemeral local storage usage exceeds the total limit of containers 100Ki. "

    def told(*containers: Obj, **volume: Any) -> str:
        return message(pod_of(*containers, init=(container("i"),), volumes=(empty_dir(**volume),)), tmp_path)

    assert told(container("a", "50Ki"), container("b", "50Ki")) == over
    assert told(container("a", "100Ki"), container("b")) == over
    assert told(container("a", "100Ki"), container("b", "100Ki")) == ""
    assert told(container("a", "50Ki"), container("b", "50Ki"), medium="Memory") == ""


def test_eviction_measures_once_per_period_while_the_pod_runs(tmp_path: Path) -> None:
    eviction = Eviction(pod_of(container("a", "16Ki")), tmp_path, cast(NodeServices, Services()))
    assert eviction.message(0.0, is_running=True) == ""
    write(tmp_path / "containers/a/0/log", 24)
    assert eviction.message(PERIOD_SECONDS - 0.1, is_running=True) == ""
    assert eviction.message(PERIOD_SECONDS, is_running=False) == ""
    assert eviction.message(PERIOD_SECONDS, is_running=True)


def test_a_verdict_is_for_ever_and_told_once(tmp_path: Path) -> None:
    write(tmp_path / "containers/a/0/log", 24)
    services = Services()
    eviction = Eviction(pod_of(container("a", "16Ki")), tmp_path, cast(NodeServices, services))
    eviction.announce()
    assert services.recorded == []
    told = eviction.message(0.0, is_running=True)
    (tmp_path / "containers/a/0/log").unlink()
    assert eviction.message(100.0, is_running=False) == told
    eviction.announce()
    eviction.announce()
    assert services.recorded == [PodEvent("Warning", "Evicted", told)]
    later = Eviction(pod_of(container("a", "16Ki")), tmp_path, cast(NodeServices, services))
    assert later.message(0.0, is_running=False) == told
    later.announce()
    assert len(services.recorded) == 1, "an earlier life of the node has told it"


def test_folder_bytes_counts_disk_usage_without_following_links(tmp_path: Path) -> None:
    write(tmp_path / "d/deep/file", 40)
    (tmp_path / "outside").mkdir()
    write(tmp_path / "outside/large", 400)
    (tmp_path / "d/link").symlink_to(tmp_path / "outside")
    assert 40 * KIB <= folder_bytes(tmp_path / "d") < 100 * KIB
    assert folder_bytes(tmp_path / "none") == 0
    sparse = tmp_path / "s/file"
    sparse.parent.mkdir()
    with open(sparse, "wb") as file:
        file.truncate(10 * KIB * KIB)
    assert folder_bytes(tmp_path / "s") < KIB * KIB, "what it takes on disk, not what it seems to have"
