"""Command lines that run in a process with imported modules, and those that are executed as without warm start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainwright.controlplane.node.warm_start.command_line import finds_other_modules, parse

BIN = Path(sys.prefix) / "bin"
PATH = f"{BIN}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python3", "train.py", "a"], ("script", "train.py", ["a"], "python3")),
        (["python", "-u", "train.py"], ("script", "train.py", [], "python")),
        ([str(BIN / "python"), "-u", "-m", "package.module", "-x"], ("module", "package.module", ["-x"], "python")),
        (["python3", "-c", "print()", "--", "b"], ("text", "print()", ["--", "b"], "python3")),
    ],
)
def test_python_command_lines_are_recognized(
    argv: list[str], expected: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    found = parse(argv, PATH)
    assert found is not None
    assert (found.kind, found.main, found.args, found.program) == expected
    assert (found.executable, found.words, found.is_torchrun) == (str(BIN / found.program), argv, False)


@pytest.mark.parametrize(
    "argv",
    [
        ["python3", "-O", "train.py"],
        ["python3", "-X", "dev", "train.py"],
        ["python3", "-I", "train.py"],
        ["python3", "-W", "error", "train.py"],
        ["python3", "missing.py"],
        ["python3", "folder"],
        ["python3", "-"],
        ["python3"],
        ["python3", "-m"],
        ["/usr/bin/env", "python3", "train.py"],
        ["bash", "-c", "python3 train.py"],
        ["missing"],
    ],
)
def test_parse_rejects_command_lines_that_must_be_executed(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse(argv, PATH) is None


def test_python_of_another_folder_is_not_recognized(tmp_path: Path) -> None:
    os.symlink(sys.executable, tmp_path / "python3")
    assert parse(["python3", "-c", "print()"], f"{tmp_path}:{PATH}") is None


@pytest.mark.parametrize(
    ("first_line", "is_recognized"),
    [
        (f"#!{BIN}/python", True),
        (f"#!{BIN}/python -E", False),
        ("#!/usr/bin/env python3", False),
        ("#!/bin/sh", False),
        ("no shebang", False),
    ],
)
def test_torchrun_is_recognized_by_its_interpreter(first_line: str, is_recognized: bool, tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    script.write_text(f"{first_line}\n", "utf-8")
    script.chmod(0o755)
    found = parse(["torchrun", "train.py"], str(tmp_path))
    assert (found is not None) is is_recognized
    if found is not None:
        assert found.is_torchrun
        assert found.words == [f"{BIN}/python", str(script), "train.py"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train.py": "import torch\nfrom transformers import pipeline\n"}, False),
        ({"train.py": "", "mine/__init__.py": ""}, False),
        ({"train.py": "", "torch/notes.txt": ""}, False),
        ({"train.py": "", "torch/__init__.py": ""}, True),
        ({"train.py": "", "torch.py": ""}, True),
        ({"train.py": "", "torch.abi3.so": ""}, True),
        ({"train.py": "", "sitecustomize.py": ""}, True),
        ({"train.py": "import sys\nsys.path.insert(0, 'vendor')\n"}, True),
        ({"train.py": "import subprocess\nsubprocess.run(['pip', 'install', 'peft'])\n"}, True),
    ],
)
def test_folders_and_scripts_that_change_modules_are_found(
    files: dict[str, str], expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = parse(["python3", f"{tmp_path}/train.py"], PATH)
    assert command is not None
    assert finds_other_modules(command, [], frozenset({"torch"})) is expected


@pytest.mark.parametrize("where", ["working directory", "PYTHONPATH"])
def test_modules_in_searched_folders_are_found(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, code = tmp_path / "folder", tmp_path / "code"
    for each in (folder, code):
        each.mkdir()
    (code / "train.py").touch()
    (folder / "peft.py").touch()
    monkeypatch.chdir(folder if where == "working directory" else code)
    command = parse(["python3", f"{code}/train.py"], PATH)
    assert command is not None
    assert finds_other_modules(command, [str(folder)] if where == "PYTHONPATH" else [], frozenset({"peft"}))


def test_module_that_is_imported_already_is_executed() -> None:
    command = parse(["python3", "-m", "json.tool"], PATH)
    assert command is not None
    assert not finds_other_modules(command, [], frozenset({"json"}))
    import json.tool  # noqa: F401  # so that the module is loaded

    assert finds_other_modules(command, [], frozenset({"json"}))
