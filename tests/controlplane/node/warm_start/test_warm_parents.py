"""Containers that may start warm, and those that the node starts as without warm start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trainwright.controlplane.node.warm_start.preload import Parent, _state
from trainwright.controlplane.node.warm_start.warm_parents import SETTING, WarmParents, pays_to_wait
from trainwright.runtimes.launcher_text import launcher_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="warm start needs Linux")
ENV = {"HOME": "/root", "OMP_NUM_THREADS": "1"}
PLAN: dict[str, Any] = {"mounts": [{"target": "/workspace"}, {"target": "/dev/shm"}]}
LAUNCHER = ["python3", "-c", launcher_text(), "--function", "fit", "--source", "def fit(): ..."]


def plain(folder: Path, lock: int) -> None:
    raise AssertionError("not called")


def starts_warm(argv: list[str], env: dict[str, str] = ENV, plan: dict[str, Any] | None = PLAN) -> bool:
    return WarmParents(plain).starter(argv, env, plan) is not plain


@pytest.mark.parametrize(
    "argv", [["torchrun", "train.py"], [*LAUNCHER, "--", "torchrun", "train.py"]], ids=["torchrun", "launcher"]
)
def test_torchrun_may_start_warm(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert starts_warm(argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "-c", "torchrun train.py"],
        ["/opt/conda/bin/torchrun", "train.py"],
        ["python3", "train.py"],
        ["python3", "-m", "torch.distributed.run", "train.py"],
        ["python3", "-c", "print('another text')", "--", "torchrun"],
        ["python3", "-c", launcher_text() + "#", "--", "torchrun"],
        [*LAUNCHER, "--", "python3", "train.py"],
        [*LAUNCHER, "--", "deepspeed", "torchrun"],
        [*LAUNCHER, "--packages", '["numpy"]', "--indexes", "[]", "--", "torchrun"],
        LAUNCHER,
    ],
    ids=range(10),
)
def test_other_commands_start_as_without(argv: list[str]) -> None:
    assert not starts_warm(argv)


@pytest.mark.parametrize(
    ("env", "plan"),
    [
        (ENV, None),
        ({"HOME": "/root"}, PLAN),
        ({"HOME": "/root", "OMP_NUM_THREADS": "2,1"}, PLAN),
        (ENV, {"mounts": [{"target": sys.prefix}]}),
        (ENV, {"mounts": [{"target": f"{sys.prefix}/lib/python3.11/site-packages/torch"}]}),
        (ENV, {"mounts": [{"target": str(Path(sys.prefix).parent)}]}),
    ],
    ids=["no isolation", "no threads", "nested threads", "environment", "package", "above"],
)
def test_other_containers_start_as_without(env: dict[str, str], plan: dict[str, Any] | None) -> None:
    assert not starts_warm(["torchrun", "train.py"], env, plan)


@pytest.mark.parametrize(
    ("argv", "env", "expected"),
    [
        (["torchrun", "train.py"], {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "1"}, False),
        (["torchrun", "train.py"], {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1"}, True),
        (["torchrun", "train.py"], {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2"}, True),
        (["torchrun", "/resume/orderly_exit.py", "trl.scripts.sft"], {}, True),
    ],
)
def test_first_training_waits_where_that_is_faster(argv: list[str], env: dict[str, str], expected: bool) -> None:
    assert pays_to_wait(argv, env) is expected


@pytest.mark.parametrize("value", ["off", "0", "no", "FALSE"])
def test_setting_turns_it_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, value)
    assert not starts_warm(["torchrun", "train.py"])


@pytest.mark.parametrize("change", ["none", "content", "replaced", "removed", "installed"])
def test_changed_files_of_modules_are_noticed(change: str, tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    module = packages / "module.py"
    module.write_text("a = 1\n", "utf-8")
    states = tuple(state for path in (module, packages) if (state := _state(str(path))) is not None)
    parent = Parent([], {}, {}, set(), frozenset(), states)
    if change == "content":
        module.write_text("a = 22\n", "utf-8")
    elif change == "replaced":
        (tmp_path / "new.py").write_text("a = 3\n", "utf-8")
        (tmp_path / "new.py").replace(module)
    elif change == "removed":
        module.unlink()
    elif change == "installed":
        (packages / "other-1.0.dist-info").mkdir()
    assert parent.is_stale() is (change != "none")
