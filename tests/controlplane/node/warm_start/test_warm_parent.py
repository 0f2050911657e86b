"""The node's side: containers that may start warm, files that make a parent stale, and the end of a parent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages
from support.waiting import eventually

from trainwright.controlplane.node.warm_start import warm_parent
from trainwright.controlplane.node.warm_start.parent import states
from trainwright.controlplane.node.warm_start.warm_parent import SETTING, WarmParent
from trainwright.runtimes.launcher_text import launcher_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="warm start needs Linux")
ENV = {"HOME": "/root", "OMP_NUM_THREADS": "1"}
PLAN: dict[str, Any] = {"mounts": [{"target": "/workspace"}, {"target": "/dev/shm"}]}
TORCHRUN = ["torchrun", "train.py"]
LAUNCHER = ["python3", "-c", launcher_text(), "--function", "fit", "--source", "def fit(): ..."]


def plain(folder: Path, lock: int) -> None:
    """Start nothing."""


def starts_warm(argv: list[str], plan: dict[str, Any] | None = PLAN) -> bool:
    return WarmParent(plain, launcher=launcher_text).starter(argv, ENV, plan) is not plain


def test_torchrun_may_start_warm_unless_the_setting_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert starts_warm(TORCHRUN)
    assert starts_warm([*LAUNCHER, "--", "torchrun"])
    monkeypatch.setenv(SETTING, "off")
    assert not starts_warm(TORCHRUN)


@pytest.mark.parametrize(
    ("argv", "plan"),
    [
        (["python3", "train.py"], PLAN),
        (["python3", "-c", launcher_text() + "#", "--", "torchrun"], PLAN),
        ([*LAUNCHER, "--", "deepspeed", "torchrun"], PLAN),
        (LAUNCHER, PLAN),
        (TORCHRUN, None),
        (TORCHRUN, {"mounts": [{"target": f"{sys.prefix}/lib/python3.11/site-packages/torch"}]}),
        (TORCHRUN, {"mounts": [{"target": str(Path(sys.prefix).parent)}]}),
    ],
    ids=["python", "other text", "other launcher", "no program", "no isolation", "volume on a package", "volume above"],
)
def test_other_containers_start_cold(argv: list[str], plan: dict[str, Any] | None) -> None:
    assert not starts_warm(argv, plan)


def test_changed_files_of_modules_are_noticed(tmp_path: Path) -> None:
    packages, other = tmp_path / "site-packages", tmp_path / "other.py"
    packages.mkdir()
    module = packages / "module.py"
    module.write_text("a = 1\n", "utf-8")
    other.write_text("a = 3\n", "utf-8")
    paths = [str(module), str(packages)]
    for change in (lambda: module.write_text("a = 22\n"), lambda: other.replace(module), (packages / "new").mkdir, module.unlink):
        os.utime(packages, (1, 1))
        before = states(paths)
        assert states(paths) == before
        change()
        assert states(paths) != before


@pytest.mark.medium
def test_parent_serves_containers_with_its_variables_and_ends_with_the_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    node = WarmParent(plain, rest_seconds=600)  # a parent that has not imported anything yet
    node.starter(TORCHRUN, ENV, PLAN)(tmp_path, 0)
    parent = node._parent
    assert parent is not None
    node.starter(TORCHRUN, {**ENV, "OMP_NUM_THREADS": "2"}, PLAN)(tmp_path, 0)
    assert node._parent is parent
    assert not node.is_ready()
    parent.connection.close()
    eventually(lambda: parent.process.poll() is not None, what="the end of the parent")
    assert parent.process.returncode == 0
    node.stop()


@pytest.mark.medium
def test_only_containers_with_the_variables_of_the_setting_wait_for_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_packages("torch")
    monkeypatch.setenv(SETTING, "HOME=/root OMP_NUM_THREADS=1")
    monkeypatch.setattr(warm_parent, "_IMPORT_SECONDS", 120.0)
    node = WarmParent(plain)
    node.prepare_first()
    try:
        lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
        node.starter(TORCHRUN, {**ENV, "OMP_NUM_THREADS": "2"}, PLAN)(tmp_path, lock)
        assert not node.is_ready()
        node.starter(TORCHRUN, ENV, PLAN)(tmp_path, lock)
        assert node.is_ready()
        os.close(lock)
    finally:
        node.stop()


def test_no_parent_is_prepared_first_without_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    node = WarmParent(plain)
    node.prepare_first()
    assert node._parent is None
