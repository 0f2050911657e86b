"""Submission modes from Airflow: what a connection says, and that a deferred task stays in the mode in which its job was submitted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, operator
from support.on_first_use import OnFirstUse

import trainwright.cluster
from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import TrainJobDeleted
from trainwright.submission.jobset_mode import JobSetCluster

hook = OnFirstUse("trainwright.operators.hook")


@pytest.mark.parametrize(
    ("conn_type", "extra", "mode"),
    [
        ("trainwright", {"namespace": "team", "submission_mode": "jobset"}, "jobset"),
        ("trainwright", {"namespace": "team"}, ""),
        ("kubernetes", {"namespace": "team", "extra__kubernetes__submission_mode": "trainjob"}, "trainjob"),
    ],
)
def test_a_connection_may_say_the_mode(monkeypatch: pytest.MonkeyPatch, conn_type: str, extra: Any, mode: str) -> None:
    connection = SimpleNamespace(conn_type=conn_type, extra_dejson=extra)
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(hook.TrainwrightHook, "get_connection", lambda *_: connection)
    monkeypatch.setattr(trainwright.submission, "connect_for_jobs", lambda *_, **more: asked.append(more))
    hook.TrainwrightHook("c").get_conn()
    hook.TrainwrightHook("c", "jobset").get_conn()
    assert [(each["mode"], each["namespace"]) for each in asked] == [(mode, "team"), ("jobset", "team")]


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


@pytest.mark.slow
def test_the_report_of_a_deferred_job_is_asked_for_where_it_is(cluster: EmbeddedCluster, asked: list[str]) -> None:
    trigger = deferred(operator()).trigger
    cluster.delete(JOBSET, trigger.name, "default")
    event = {**event_of(trigger), "outcome": "failed"}
    with pytest.raises(TrainJobDeleted):
        operator().execute_complete(context(), event)
    assert asked[1:] == ["jobset", "jobset"]
