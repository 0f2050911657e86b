"""A program that fails for good is not started again and again: the wait stops its job, and says which rank failed and how."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from factories import container_status, terminated, train_request

from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.api.phase import Phase, phase_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import StepFailed, Waiting
from trainwright.jobs.diagnosis.errors import CannotRun, TooManyRestarts
from trainwright.jobs.state.attempts import needs_new_attempt
from trainwright.jobs.state.cancel import cancel_owned_job
from trainwright.jobs.wait import observer_memory
from trainwright.jobs.wait.job_observer import JobObserver, WaitSettings
from trainwright.jobs.wait.run_step import follow_to_end
from trainwright.jobs.wait.waiting import restarts_of_request
from trainwright.runtimes.launch import CANNOT_RUN, CANNOT_RUN_MARK

READY = [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]


def train() -> None:
    pass


@pytest.fixture(autouse=True)
def _in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No controller ends the pods of a job that is stopped: they are not waited for."""
    monkeypatch.setattr(observer_memory, "_CONFIRMED_SECONDS", 0.2)
    monkeypatch.setitem(cancel_owned_job.__kwdefaults__, "timeout_seconds", 0.0)


def restarted(times: int, *, code: int = 1, message: str = "") -> dict[str, Any]:
    """The status of a pod whose container runs again."""
    ended = terminated(code, at="2100-01-01T00:00:05Z", message=message)
    running = {"running": {"startedAt": "2100-01-01T00:00:06Z"}}
    status = container_status(running, ready=True, restartCount=times, lastState=ended)
    return {"phase": "Running", "containerStatuses": [status]}


def settings(restarts: int | None) -> WaitSettings:
    return WaitSettings(poll_seconds=0.05, interval=lambda _phase: 0.1, restarts=restarts)


@pytest.mark.medium
def test_a_failed_rank_ends_the_job_at_once_and_is_named(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    set_status(job, jobsStatus=READY)
    add_pod(job, 0, **{"phase": "Running"})
    add_pod(job, 1, **restarted(1))
    with pytest.raises(
        StepFailed, match=r"FailedTooOften: pod \S+-node-0-1-\S+ exited 1; set `limits.restarts` to restart"
    ) as raised:
        follow_to_end(cluster, job, Waiting(settings(0)))
    assert raised.value.report is not None
    cause = raised.value.report.cause
    assert cause is not None
    assert cause.index == 1
    left = cluster.get(TRAINJOB, name_of(job), "default")
    assert left["spec"]["suspend"] is True
    assert needs_new_attempt(left)


def test_pods_that_a_suspension_stops_have_not_failed(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun exits with 1 on SIGTERM."""
    monkeypatch.setattr(observer_memory, "_CONFIRMED_SECONDS", 0.0)
    job = set_status(job, jobsStatus=READY)
    observer = JobObserver(cluster, job, WaitSettings(interval=lambda _phase: 0.0, restarts=0))
    observer.observe(job)
    add_pod(job, 1, **restarted(1))
    suspended = {**job, "spec": {**job["spec"], "suspend": True}}
    for state in (suspended, suspended, job):
        observer.observe(state)
    add_pod(job, 2, **restarted(1))
    with pytest.raises(TooManyRestarts, match="node-0-2"):
        observer.observe(job)


def test_program_that_can_never_run_ends_the_job_whatever_restarts_are_allowed(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    set_status(job, jobsStatus=READY)
    add_pod(job, 0, **{"phase": "Running"})
    add_pod(job, 1, **restarted(1, code=CANNOT_RUN, message=f"{CANNOT_RUN_MARK}No module named 'x'"))
    words = (
        r"CannotRun: pod \S+-node-0-1-\S+ exited 15: trainwright cannot run this program: No module named 'x'; to start it again"
    )
    with pytest.raises(CannotRun, match=words):
        follow_to_end(cluster, job, Waiting(settings(5)))
    left = cluster.get(TRAINJOB, name_of(job), "default")
    assert left["spec"]["suspend"] is True
    assert phase_of(left) is Phase.Failed


@pytest.mark.medium
@pytest.mark.parametrize(
    ("restarts", "status"),
    [
        (None, restarted(1)),
        (1, restarted(1)),
        (1, restarted(1, code=CANNOT_RUN, message="told by a program of that code")),
        (None, restarted(1, code=CANNOT_RUN, message=f"{CANNOT_RUN_MARK}in a job of somebody else")),
    ],
)
def test_restarts_that_are_allowed_do_not_end_the_job(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any, restarts: int | None, status: dict[str, Any]
) -> None:
    set_status(job, jobsStatus=READY)
    add_pod(job, 1, **status)
    looked = threading.Event()
    ended: list[Any] = []
    waiting = threading.Thread(
        target=lambda: ended.append(
            follow_to_end(cluster, job, Waiting(settings(restarts), observers=(lambda _: looked.set(),)))
        ),
        daemon=True,
    )
    waiting.start()
    assert looked.wait(10)
    waiting.join(1)  # longer than it takes to end the job in the other tests
    assert waiting.is_alive()
    set_status(job, "Complete")
    waiting.join(10)
    assert [name_of(one) for one in ended] == [name_of(job)]


@pytest.mark.parametrize(
    ("fields", "restarts"),
    [
        ({"func": train}, 0),
        ({"code": "/code", "command": ["train.py"]}, 0),
        ({"func": train, "restarts": 3}, 3),
        ({"command": ["train"]}, None),
        ({"command": ["train"], "restarts": "2"}, 2),
    ],
)
def test_functions_and_code_are_not_started_again_by_default(fields: dict[str, Any], restarts: int | None) -> None:
    assert restarts_of_request(train_request(**fields)) == restarts
