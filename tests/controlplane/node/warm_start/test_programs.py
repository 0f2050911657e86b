"""Every doubt about a command starts it cold: its words, its variables, its scripts, and the modules beside them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainwright.controlplane.node.warm_start.programs import Preloaded, parse

TORCHRUN = ["torchrun", "train.py", "--max-restarts", "1"]
LAUNCHER = ["python3", "-c", "print()", "--function", "fit", "--", "torchrun"]
RANK = [sys.executable, "-u", "train.py", "--steps", "3"]
PARENT = {"PATH": f"{os.path.dirname(sys.executable)}:/bin", "HOME": "/root", "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1"}
PET = {"NNODES": "2", "NPROC_PER_NODE": "3", "NODE_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}
ENV = {**PARENT, **{f"PET_{name}": value for name, value in PET.items()}}
PRELOADED = Preloaded([], PARENT, {}, frozenset({"HOME", "READ"}), frozenset({"torch", "peft", "json", "sitecustomize"}))


def children_of(argv: list[str], env: dict[str, str] = ENV) -> int | None:
    """How many children a command that runs in this process has; None if it is executed."""
    command = parse(argv, env)
    if command is None or PRELOADED.has_other_variables(env) or PRELOADED.has_other_modules(argv, env):
        return None
    return command.children


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import torch\n", "utf-8")
    (tmp_path / "library").mkdir()
    monkeypatch.chdir(tmp_path / "code")


@pytest.mark.parametrize(("argv", "expected"), [(TORCHRUN, 3), (LAUNCHER, 1), (RANK, 0)])
def test_plain_commands_run_in_the_process(argv: list[str], expected: int) -> None:
    assert children_of(argv) == expected


def test_variables_of_programs_and_other_modules_may_differ(tmp_path: Path) -> None:
    (tmp_path / "library" / "mine.py").touch()
    (tmp_path / "code" / "torch").mkdir()
    others = {"PYTHONPATH": str(tmp_path / "library"), "HF_TOKEN": "secret", "TORCHELASTIC_RUN_ID": "none", "RATE": "1"}
    assert children_of(RANK, {**ENV, **others}) == 0


@pytest.mark.parametrize(
    "argv",
    [
        ["torchrun", "-m", "train"],
        ["torchrun", "--max-restarts", "1", "train.py"],
        ["torchrun", "missing.py"],
        ["torchrun"],
        [f"{sys.prefix}/bin/torchrun", "train.py"],
        ["python3", "train.py"],
        ["python3", "-m", "train"],
        [sys.executable, "-u", "-m", "train"],
        [sys.executable, "-u"],
        ["bash", "-c", "torchrun train.py"],
    ],
    ids=" ".join,
)
def test_other_commands_start_cold(argv: list[str]) -> None:
    assert children_of(argv) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("PET_NNODES", "1:4"), ("PET_NPROC_PER_NODE", "auto"), ("PET_NPROC_PER_NODE", None), ("PET_MASTER_PORT", None)),
        *(("PET_MAX_RESTARTS", "1"), ("PET_STANDALONE", "1"), ("PET_LOG_DIR", "/logs")),
        *(("PATH", "/code/bin:/bin"), ("HOME", "/home/other"), ("READ", "1"), ("OMP_NUM_THREADS", None)),
        *(("PYTHONHASHSEED", "0"), ("LD_PRELOAD", "a.so"), ("LC_ALL", "C"), ("MKL_NUM_THREADS", "1"), ("TORCH_LOGS", "dynamo")),
        *(("CUDA_VISIBLE_DEVICES", "0"), ("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_CACHE", "/x"), ("MALLOC_ARENA_MAX", "1")),
    ],
)
def test_variables_on_which_imports_or_ranks_depend_start_cold(name: str, value: str | None) -> None:
    env = {key: each for key, each in {**ENV, name: value}.items() if each is not None}
    assert children_of(TORCHRUN, env) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("code/torch/__init__.py", ""),
        ("code/torch.py", ""),
        ("code/torch.abi3.so", ""),
        ("code/sitecustomize.py", ""),
        ("library/peft.py", ""),
        ("code/train.py", "import sys\nsys.path.insert(0, 'vendor')\n"),
        ("code/train.py", "import sys\nsys.modules.pop('torch')\n"),
        ("code/train.py", "import subprocess\nsubprocess.run(['pip', 'install', 'peft'])\n"),
    ],
)
def test_other_modules_start_cold(file: str, text: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text, "utf-8")
    assert children_of(TORCHRUN, {**ENV, "PYTHONPATH": str(tmp_path / "library")}) is None


def test_torchrun_of_another_interpreter_starts_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for first_line in (f"#!{tmp_path}/python", f"#!{tmp_path}/python -E", "#!/usr/bin/env python3", "#!/bin/sh", ""):
        (tmp_path / "torchrun").write_text(f"{first_line}\n", "utf-8")
        assert children_of(TORCHRUN) == (3 if first_line.endswith("/python") else None)


def test_scripts_of_runtimes_run_in_the_process(tmp_path: Path) -> None:
    from trainwright.runtimes import launch, orderly_exit

    for text in (launch.SCRIPT_RUNNER, Path(orderly_exit.__file__).read_text("utf-8")):
        (tmp_path / "code" / "train.py").write_text(text, "utf-8")
        assert children_of(RANK) == 0
