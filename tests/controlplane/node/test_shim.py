"""A container that is told to end in its first moment ends, and its exit code says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import eventually

from trainwright.controlplane.node import shim

pytestmark = pytest.mark.medium
SLOW_EXEC = """
import runpy, sys, time
module = runpy.run_path(sys.argv[1])
main, exec_container_process = module["main"], module["exec_container_process"]
def slowly(*arguments):
    time.sleep(0.5)
    exec_container_process(*arguments)
main.__globals__["exec_container_process"] = slowly
del sys.argv[0]
main()
"""


def read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_program_is_there_is_not_lost(tmp_path: Path, number: signal.Signals) -> None:
    spec = {"argv": ["sleep", "600"], "env": dict(os.environ), "cwd": str(tmp_path), "log": str(tmp_path / "log")}
    (tmp_path / "spec.json").write_text(json.dumps(spec), "utf-8")
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    command = [sys.executable, "-c", SLOW_EXEC, str(shim.__file__), str(tmp_path), str(lock)]
    process = subprocess.Popen(command, pass_fds=[lock])
    try:
        state = eventually(lambda: read(tmp_path / "state.json"), 20)
        os.kill(state["pid"], number)
        ended = eventually(lambda: read(tmp_path / "exit.json"), 20)
        assert (ended["signal"], ended["code"]) == (number, 128 + number)
    finally:
        process.kill()
        process.wait(10)
        os.close(lock)
