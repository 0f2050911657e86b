"""Submission modes from Airflow: what a connection says, and that a deferred task stays in the mode in which its job was submitted."""

from __future__ import annotations

from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, operator
from support.on_first_use import OnFirstUse

from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.submission.jobset_mode import JobSetCluster

hook = OnFirstUse("trainwright.operators.hook")


@pytest.fixture
def asked(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes that connections are asked for; without one auto chooses TrainJobs."""
    modes: list[str] = []

    def connect(hook: hook.TrainwrightHook, _settings: Any) -> Any:
        modes.append(hook.submission_mode)
        return cluster if hook.submission_mode != "jobset" and len(modes) > 1 else JobSetCluster(cluster)

    monkeypatch.setattr(hook.TrainwrightHook, "connect", connect)
    monkeypatch.setattr(cluster, "default_namespace", "default", raising=False)
    return modes


@pytest.mark.medium
def test_a_deferred_task_follows_its_job_where_it_is(cluster: EmbeddedCluster, asked: list[str]) -> None:
    trigger = deferred(operator()).trigger
    (jobset,) = cluster.list(JOBSET, "default").items
    assert cluster.list(TRAINJOB, "default").items == []
    ended = [{"type": "Completed", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    patch = {"status": {"restarts": 0, "conditions": ended}}
    cluster.patch(JOBSET, jobset["metadata"]["name"], patch, "default", subresource="status")
    event = event_of(trigger)
    assert (event["outcome"], event["submission_mode"]) == ("succeeded", "jobset")
    assert asked == ["", "jobset"]
    result = operator().execute_complete(context(), event)
    assert result["trainjob"] == jobset["metadata"]["name"]
