"""What interrupts the main job, and how it goes on: Ctrl-C and SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from quickstart_command import command, processes_of, run, start
from support.rounds import IS_LONG
from support.scripted_image import use_scripted_programs
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
STEPS = 100
"""Of which the first checkpoint, after five, is interrupted: it takes seconds to the last."""


def checkpoints(runs: Path, name: str) -> list[str]:
    return sorted(path.name for path in (runs / name / "workspace/runs" / name / "output").glob("checkpoint-*"))


def node_logs(runs: Path) -> str:
    return "".join(path.read_text("utf-8") for path in (runs / ".home/node/pods").glob("*/containers/resume-point/*/log"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM] if IS_LONG else [signal.SIGINT])
def test_an_interrupted_run_stops_within_ten_seconds_and_goes_on_from_its_checkpoint(runs: Path, number: signal.Signals) -> None:
    name = f"interrupted-{number.name.lower()}"
    use_scripted_programs(runs / ".home", runs / "programs", step_seconds=0.1)
    arguments = command(runs, "--name", name, steps=STEPS)
    with open(runs / "log", "w", encoding="utf-8") as output:
        process = start(arguments, output)
        eventually(lambda: len(checkpoints(runs, name)) > 1, 180, "a second checkpoint: the first one is whole then")
        began = time.monotonic()
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # Ctrl-C reaches the whole group
        else:
            process.send_signal(number)
        assert process.wait(10) == 130
    assert time.monotonic() - began < 10
    eventually(lambda: not processes_of(runs), 10, "processes that are left")
    assert (runs / name / "result.json").exists() is False
    status, output_text = run(arguments, runs / "resumed.log", 400)
    assert status == 0, output_text
    assert "✓ train" in output_text
    state = json.loads(next((runs / name / "export").glob(f"*/checkpoint-{STEPS}/*/trainer_state.json")).read_text("utf-8"))
    steps = [entry["step"] for entry in state["log_history"] if "loss" in entry]
    assert steps == sorted(set(steps))
    assert "resuming from" in node_logs(runs)
