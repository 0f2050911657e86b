"""Formats of other packages take part, and a broken one is named."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace

import pytest
from checkpoint_files import checkpoint_files
from format_files import write
from support.installed_plugins import installed_plugins

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.find import find_checkpoints, latest_checkpoint
from trainwright.checkpoints.formats import checkpoint_format, registry
from trainwright.checkpoints.formats.registry import GROUP
from trainwright.checkpoints.pin import pin_checkpoint
from trainwright.checkpoints.resume_point import resume_point


class Mine:
    name = "mine"

    def step_of(self, folder: Path) -> int | None:
        return 3 if folder.name == "mine" else None

    def step_of_output(self, output: Path) -> int | None:
        return 4 if (output / "mine.bin").exists() else None

    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        return None if (folder / "mine.bin").exists() else "mine.bin is missing"

    def is_training_state(self, path: PurePosixPath) -> bool:
        return path.suffix == ".state"


class Failing(Mine):
    name = "failing"

    def incomplete_reason(self, folder: Path, step: int, world_size: int | None) -> str | None:
        raise KeyError("secret\nline")


class Taken(Mine):
    name = "hf-trainer"


class Nothing:
    name = "nothing"


class Raising:
    def __init__(self) -> None:
        raise ValueError("no licence")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    with installed_plugins(monkeypatch, registry._installed.cache_clear) as found:
        yield found


def entry(name: str) -> EntryPoint:
    made = EntryPoint(name.lower(), f"{__name__}:{name}", GROUP)
    vars(made).update(dist=SimpleNamespace(name="their-package"))
    return made


def test_an_installed_format_takes_part(output: Path, installed: list[EntryPoint]) -> None:
    installed.append(entry("Mine"))
    write(output / "mine", {"other": b""})
    assert [(each.format, each.step, each.incomplete) for each in find_checkpoints(output)] == [
        ("mine", 3, "mine.bin is missing")
    ]
    write(output / "mine", {"mine.bin": b""})
    with pin_checkpoint(latest_checkpoint(output)) as folder:
        assert (folder / "mine.bin").exists()
    assert checkpoint_format("mine").is_training_state(PurePosixPath("a.state"))


def test_the_output_itself_may_be_one(output: Path, installed: list[EntryPoint]) -> None:
    installed.append(entry("Mine"))
    write(output, {"mine.bin": b""})
    assert [(each.path, each.step) for each in find_checkpoints(output)] == [(output, 4)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Absent", "cannot be loaded: AttributeError: .*Absent"),
        ("Raising", "cannot be loaded: ValueError: no licence; fix or uninstall it"),
        (
            "Nothing",
            "is not a checkpoint format: expected a `name` and the methods step_of, incomplete_reason, is_training_state",
        ),
        ("Taken", "adds a checkpoint format 'hf-trainer', but that name is taken"),
    ],
)
def test_broken_plugin_is_named_with_its_package(output: Path, installed: list[EntryPoint], name: str, reason: str) -> None:
    installed.append(entry(name))
    write(output / "checkpoint-5", checkpoint_files(5))
    origin = re.escape(f"the entry point {name.lower()} = {__name__}:{name} in {GROUP} of the package their-package")
    with pytest.raises(CheckpointError, match=f"{origin} {reason}"):
        find_checkpoints(output)
    assert resume_point(output.parent) == output / "checkpoint-5"  # needs none of them


def test_an_exception_of_one_names_it_in_one_line(output: Path, installed: list[EntryPoint]) -> None:
    installed.append(entry("Failing"))
    write(output / "mine", {"mine.bin": b""})
    with pytest.raises(
        CheckpointError, match=r"package their-package failed in incomplete_reason for .*/mine: KeyError: .*secret"
    ) as raised:
        find_checkpoints(output)
    assert "\n" not in str(raised.value)


def test_the_worked_example_of_the_documentation_works(
    output: Path, installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs/plugins.md").read_text("utf-8")
    code = next(each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "incomplete_reason" in each)
    module = ModuleType("documented_format")
    exec(compile(code, "docs/plugins.md", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "documented_format", module)
    installed.append(EntryPoint("msgpack", "documented_format:MsgpackFormat", GROUP))
    write(output / "state-9", {"weights.msgpack": b"w", "optimizer.msgpack": b"o"})
    (found,) = find_checkpoints(output)
    assert (found.format, found.step, found.incomplete) == ("msgpack", 9, "digest.txt is missing")
    write(output / "state-9", {"digest.txt": b""})
    assert latest_checkpoint(output).step == 9
    assert checkpoint_format("msgpack").is_training_state(PurePosixPath("optimizer.msgpack"))
