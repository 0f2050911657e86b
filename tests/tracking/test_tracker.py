"""Tracking never keeps the thread that waits for the job: with a tool that cannot be had, and one that dies."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from support.waiting import eventually

from trainwright.jobs.diagnosis.errors import TrainJobError
from trainwright.jobs.wait.job_events import Metrics
from trainwright.tools.errors import ToolUnavailable
from trainwright.tracking import TrackedRun, parse_targets, tracker, tracking

RUN = TrackedRun("my-run-1234", "kfp/my-run/train", "0123456789abcdef")
TARGETS = parse_targets(["tensorboard:/nowhere"], {})
EVENTS = (Metrics((("loss", "1"),)),)


def test_a_tool_that_cannot_be_installed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object, **__: object) -> Path:
        raise ToolUnavailable("no index")

    monkeypatch.setattr(tracker, "tool_environment", unavailable)
    said: list[str] = []
    with tracking(RUN, TARGETS, write=said.append) as observe:
        eventually(lambda: said)
        observe(EVENTS)
    assert said == ["tracking: tensorboard: does not get the metrics: no index"]


@pytest.mark.medium
def test_a_tool_that_dies_is_one_line_with_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; input(); print('> began', flush=True); print('no disk'); sys.exit(3)")
    monkeypatch.setattr(tracker, "tool_environment", lambda *_, **__: Path(sys.executable))
    said: list[str] = []
    with tracking(RUN, TARGETS, write=said.append, program=program) as observe:
        values = itertools.count()
        eventually(lambda: observe((Metrics((("loss", str(next(values))),)),)) or len(said) == 2)
    assert said == ["tracking: tensorboard: began", "tracking: tensorboard: ended with exit code 3: > began | no disk"]


def test_that_nobody_reads_the_step_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(TrainJobError):
        pass

    def unavailable(*_: object, **__: object) -> Path:
        raise ToolUnavailable("no index")

    def write(_line: str) -> None:
        raise Gone

    monkeypatch.setattr(tracker, "tool_environment", unavailable)

    def waited() -> None:
        with tracking(RUN, TARGETS, write=write) as observe:
            eventually(lambda: observe(EVENTS))

    with pytest.raises(Gone):
        waited()
