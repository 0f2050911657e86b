"""Where a job stands, in a word and in a line."""

from __future__ import annotations

from typing import Any

import pytest
from factories import trainjob

from trainwright.jobs import Phase, Progress, phase_of
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.progress_line import is_progress_line, progress_line
from trainwright.jobs.state.trim_trainjob import trim_trainjob

QUEUED = {"kueue.x-k8s.io/queue-name": "q"}


def job_with(*conditions: str, labels: dict[str, str] | None = None, spec: Any = None, **status: Any) -> dict[str, Any]:
    entries = [{"type": name, "status": "True"} for name in conditions]
    return trainjob(labels=labels, status={"conditions": entries, **status}, **(spec or {}))


def steps(**ready: int) -> list[dict[str, Any]]:
    return [{"name": name.replace("_", "-"), "ready": count} for name, count in ready.items()]


@pytest.mark.parametrize(
    ("trainjob", "expected"),
    [
        (job_with("Complete"), Phase.Succeeded),
        (job_with("Complete", spec={"suspend": True}), Phase.Succeeded),
        (job_with("Failed", jobsStatus=steps(node=1)), Phase.Failed),
        (job_with("Suspended", spec={"suspend": True}), Phase.Suspended),
        (job_with(spec={"suspend": True}, labels=QUEUED), Phase.Queued),
        (job_with(spec={"suspend": False}, labels=QUEUED), Phase.Starting),
        (job_with(), Phase.Starting),
        ({"metadata": {}, "spec": {}}, Phase.Starting),
        (job_with("Suspended", spec={"suspend": False}), Phase.Starting),
        (job_with(jobsStatus=steps(dataset_initializer=1, model_initializer=1, node=0)), Phase.Starting),
        (job_with(jobsStatus=steps(dataset_initializer=0, node=1)), Phase.Running),
        (job_with(jobsStatus=steps(launcher=1)), Phase.Running),
        ({**job_with(), "status": {"conditions": [{"type": "Failed", "status": "False"}]}}, Phase.Starting),
    ],
)
def test_phases(trainjob: dict[str, Any], expected: Phase) -> None:
    assert phase_of(trainjob) is phase_of(trim_trainjob(trainjob)) is expected
    assert progress_of(trim_trainjob(trainjob)) == progress_of(trainjob)
    assert expected.is_final == (expected in (Phase.Succeeded, Phase.Failed))


def test_a_restart_is_told_from_a_start_by_the_jobset() -> None:
    restarting = {"status": {"conditions": [{"type": "RestartingJobSet", "status": "True"}]}}
    assert phase_of(job_with(), restarting) is Phase.Restarting
    assert phase_of(job_with("Complete"), restarting) is Phase.Succeeded


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(Phase.Starting), "Starting"),
        (Progress(Phase.Running, 40, 12, (("loss", "1.5234567"), ("grad_norm", "3"))), "Running 40 % (12 s left) loss=1.523"),
        (Progress(Phase.Running, 0, 0, (("epoch", "nan"), ("eval_loss", "low"))), "Running 0 % eval_loss=low epoch=nan"),
        (Progress(Phase.Succeeded, 100), "Succeeded 100 %"),
    ],
)
def test_progress_lines(progress: Progress, line: str) -> None:
    assert progress_line(progress) == line
    assert is_progress_line(line)


@pytest.mark.parametrize(
    "line", ["", "Running tests", "***** Running training *****", "Failed to read", "loss=1.5", "Running 4 %x"]
)
def test_other_lines_are_no_progress_lines(line: str) -> None:
    assert not is_progress_line(line)


def test_progress_is_read_from_what_the_training_reported() -> None:
    reported = {"progressPercentage": 7, "estimatedRemainingSeconds": 9, "metrics": [{"name": "loss", "value": "1"}]}
    seen = progress_of(job_with(jobsStatus=steps(node=1), trainerStatus=reported))
    assert seen == Progress(Phase.Running, 7, 9, (("loss", "1"),))
    assert progress_of(trim_trainjob(job_with(jobsStatus=steps(node=1), trainerStatus=reported))) == seen
    assert progress_of(job_with(trainerStatus=None, jobsStatus=None)) == Progress(Phase.Starting)
