"""Commands of probes and hooks: one that cannot be started says nothing about the container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.controlplane.node.container import run_of
from trainwright.controlplane.node.container_context import ContainerContext
from trainwright.controlplane.node.container_keeper import run_command
from trainwright.controlplane.node.handlers import CommandResult

pytestmark = pytest.mark.medium


def run(folder: Path, *argv: str) -> CommandResult:
    context = ContainerContext({"PATH": os.environ["PATH"]}, folder, str, (), {})
    return run_command(list(argv), context, run_of("main", 0, folder), 20.0)


@pytest.mark.parametrize("code", [0, 3, 126, 127])
def test_a_command_has_an_exit_code_and_output(tmp_path: Path, code: int) -> None:
    assert run(tmp_path, "sh", "-c", f"echo out; exit {code}") == CommandResult(code, b"out\n")


@pytest.mark.parametrize("program", ["/no/such", "no-such-program", "/etc/passwd"])
def test_command_that_cannot_start_raises_an_os_error(tmp_path: Path, program: str) -> None:
    with pytest.raises(OSError, match="cannot start"):
        run(tmp_path, program)
