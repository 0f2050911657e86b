"""Where a job stands, in a word and in a line."""

from __future__ import annotations

from typing import Any

import pytest
from factories import trainjob

from trainwright.jobs import Phase, phase_of
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.state.watched_pods import trim_trainjob

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
