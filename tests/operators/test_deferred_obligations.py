"""What a deferred task owes to its job: a sign of life while the triggerer waits, and no credentials after its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, fail, operator, the_job
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright import operators
from trainwright.api import names
from trainwright.api.errors import ServiceUnavailable, Unauthorized
from trainwright.api.kinds import SECRET, TRAINJOB
from trainwright.api.objects import name_of, owners_of, uid_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import TrainJobFailed
from trainwright.jobs.state.cancel import CancelPolicy, cancel_version
from trainwright.jobs.state.waiters import WaiterLease, lost_mark, waiter_lease_of

trigger_lease = OnFirstUse("trainwright.operators.trigger")

pytestmark = pytest.mark.medium
SetStatus = Callable[..., Any]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators.TrainJobTrigger, "lease_retry_seconds", 0.0)


def followed_until(cluster: EmbeddedCluster, set_status: SetStatus, trigger: Any, look: Callable[[], Any]) -> None:
    """Run the trigger until something is seen, and let its job end then."""
    found: list[BaseException] = []

    def end() -> None:
        try:
            eventually(look, 20)
        except AssertionError as error:
            found.append(error)
        set_status(the_job(cluster), "Complete")

    ending = threading.Thread(target=end)
    ending.start()
    assert event_of(trigger)["outcome"] == "succeeded"
    ending.join()
    assert not found


@pytest.mark.usefixtures("at_once")
def test_the_triggerer_holds_a_lease(connected: EmbeddedCluster, set_status: SetStatus) -> None:
    trigger = deferred(operator(ending={"waiter_lease_seconds": 600})).trigger
    job, long_ago = the_job(connected), "2026-01-01T00:00:00Z"
    assert waiter_lease_of(job) is not None, "the task may be ended before a trigger has started"
    connected.patch(TRAINJOB, name_of(job), {"metadata": {"annotations": {names.WAITER_RENEWED_ANNOTATION: long_ago}}}, "default")
    followed_until(connected, set_status, trigger, lambda: waiter_lease_of(the_job(connected)) != WaiterLease(600, long_ago))
    lease = waiter_lease_of(the_job(connected))
    assert lease is not None
    assert lease.seconds == 600


def test_lease_that_cannot_be_renewed_is_logged_once_for_each_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    answers: list[Exception | None] = [
        *(Unauthorized("expired"), Unauthorized("expired"), ServiceUnavailable("down"), None, Unauthorized("expired"))
    ]

    def renew(*_: Any) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr("trainwright.operators.trigger.renew_lease", renew)
    log = SimpleNamespace(warning=lambda text, *values: warned.append(text % values))

    async def renew_all() -> None:
        lease = trigger_lease.TriggerLease(SimpleNamespace(log=log), 600, 0.0)
        while answers:
            lease._due = 0.0
            await lease.keep(None, {"metadata": {"name": "job"}, "status": {}})

    asyncio.run(renew_all())
    assert warned == [f"the lease on TrainJob job was not renewed: {why}" for why in ("expired", "down", "expired")]


@pytest.mark.usefixtures("at_once")
def test_a_job_that_was_suspended_while_no_triggerer_ran_goes_on(connected: EmbeddedCluster, set_status: SetStatus) -> None:
    trigger = deferred(operator(ending={"waiter_lease_seconds": 600})).trigger
    job = the_job(connected)
    cancel_version(connected, job, CancelPolicy.suspend, lost_mark())
    followed_until(connected, set_status, trigger, lambda: not the_job(connected)["spec"].get("suspend"))


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    told = SimpleNamespace(conn_type="aws", login="id", password="not to be seen", extra_dejson={})
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(lambda _cls, _conn_id: told))


def secrets(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    return cluster.list(SECRET, "default").items


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_credentials_of_connections_go_with_the_end_of_the_job(
    connected: EmbeddedCluster, set_status: SetStatus, end: str
) -> None:
    task = operator(store_conn_id="s3", dataset_uri="s3://bucket/rows.jsonl", runtime="trl-sft")
    trigger = deferred(task).trigger
    (secret,) = secrets(connected)
    job = the_job(connected)
    assert [owner["uid"] for owner in owners_of(secret)] == [uid_of(job)]
    assert f"'name': '{name_of(secret)}', 'key': 'AWS_SECRET_ACCESS_KEY'" in str(job["spec"])
    assert "not to be seen" not in f"{job}{trigger.serialize()}"
    set_status(job, end)
    event = event_of(trigger)
    if end == "Failed":
        with pytest.raises(TrainJobFailed):
            task.execute_complete(context(), event)
    else:
        task.execute_complete(context(), event)
    assert secrets(connected) == []


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("by_retry", [True, False])
def test_credentials_go_with_a_job_whose_trigger_has_said_nothing(
    connected: EmbeddedCluster, set_status: SetStatus, by_retry: bool
) -> None:
    def task() -> Any:
        return operator(store_conn_id="s3", dataset_uri="s3://bucket/rows.jsonl", runtime="trl-sft")

    deferred(task())
    set_status(the_job(connected), "Complete")
    assert len(secrets(connected)) == 1
    if by_retry:
        task().execute(context(try_number=2))
    else:
        task().resume_execution(*fail("Trigger failure"), context())
    assert secrets(connected) == []


@pytest.mark.usefixtures("connection")
def test_a_job_that_was_only_stopped_keeps_them_for_its_next_try(connected: EmbeddedCluster) -> None:
    task = operator(
        store_conn_id="s3", dataset_uri="s3://bucket/rows.jsonl", runtime="trl-sft", limits={"run_timeout_seconds": 1}
    )
    trigger = deferred(task).trigger
    event = {**event_of_deadline(trigger), "what": "run"}
    with pytest.raises(Exception, match="took too long"):
        task.execute_complete(context(), event)
    assert len(secrets(connected)) == 1


def event_of_deadline(trigger: Any) -> dict[str, Any]:
    metadata = {"name": trigger.name, "namespace": trigger.namespace, "uid": trigger.uid}
    return {**metadata, "outcome": "deadline", "message": "it took too long", "submission_mode": "", "until": None}
