"""The pages of `--help`: sections, whole sentences, and a text and a form for every option."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import typer
from typer.testing import CliRunner

from trainwright.cli import app
from trainwright.cli.app import commands_of


def commands(command: Any, name: str = "trainwright") -> Iterator[tuple[str, Any]]:
    yield name, command
    for sub, one in getattr(command, "commands", {}).items():
        yield from commands(one, f"{name} {sub}")


COMMANDS = dict(commands(typer.main.get_command(app)))


def page(*arguments: str) -> str:
    return CliRunner().invoke(app, [*arguments, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout


def test_commands_are_in_sections_with_whole_sentences() -> None:
    assert "\nJobs:\n  finetune " in page()
    assert "Commands:" not in page()
    for name in COMMANDS:
        *group, own = name.split()[1:] or [""]
        sentence = COMMANDS[name].help.split("\n\n")[0].split(". ")[0].removesuffix(".")
        assert not own or " ".join(f"{own} {sentence}".split()) in " ".join(page(*group).split())


def test_settings_of_a_job_are_in_sections_and_say_where_json_is_read() -> None:
    text = page("submit")
    assert "\nWhat runs:\n  --runtime <str> " in text
    for form in (
        "--settings KEY=VALUE|JSON",
        "--env KEY=VALUE|JSON",
        "--args WORDS|JSON",
        "--volumes JSON",
        "--func FILE.py:NAME",
    ):
        assert form in text


def test_every_option_has_a_text_and_no_type_of_python() -> None:
    missing = [
        f"{name} {option.opts[-1]}"
        for name, command in COMMANDS.items()
        for option in command.params
        if not option.help or ((option.multiple if hasattr(option, "multiple") else False) and not option.metavar)
    ]
    assert missing == []


def test_every_command_that_a_module_registers_is_in_the_help() -> None:
    sections = importlib.import_module("trainwright.cli.app")._SECTIONS  # the package has the application under that name
    expected: dict[str, set[str]] = {}
    for named in sections.values():
        for name, module in named.items():
            expected.setdefault(module, set()).add(name)
    for module, names in expected.items():
        assert set(commands_of(module)) == names, module


def test_a_command_imports_only_its_own_module() -> None:
    code = "import sys; from trainwright.cli import app\napp(['status', '--help'], standalone_mode=False)\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "trainwright.cli.controlplane" in loaded
    assert not {"trainwright.cli.submit", "trainwright.cli.jobs", "trainwright.pipelines"} & set(loaded)
