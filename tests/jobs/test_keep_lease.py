"""What a waiting client does besides: suspends its job with one request at a signal, and keeps a lease on it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from factories import program_request
from support.cluster_without_controllers import current
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import EVENT, TRAINJOB, Kind
from trainwright.api.objects import annotations_of, labels_of, name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, Waiting, submit_or_adopt
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.state.cancel import CancelPolicy, cancel_version
from trainwright.jobs.state.waiters import MIN_SECONDS, Workflow, lost_mark, renewal_patch, waiter_lease_of
from trainwright.jobs.wait.give_up import stop_on_signals
from trainwright.jobs.wait.keep_lease import Waiter, WaiterOptions
from trainwright.jobs.wait.run_step import run_to_end
from trainwright.materialize import Settings
from trainwright.trainer.trainjob import TrainJobReconciler

STEP = Identity("kfp", "run", "train")
REQUEST = program_request(run_timeout_seconds=0)
"""Without a deadline, for which a controller would look again."""
Job = dict[str, Any]
AT_ONCE = WaiterOptions(suspends_at_once=True)


@pytest.fixture
def job(cluster: EmbeddedCluster) -> Job:
    return submit_or_adopt(Submission(cluster, REQUEST, STEP, "default")).trainjob


class Recording(DelegatingCluster):
    """The cluster, with the requests that a waiter sends; `broken` makes patches fail."""

    def __init__(self, cluster: EmbeddedCluster):
        super().__init__(cluster)
        self.calls, self.broken = list[str](), False

    def get(self, kind: Kind, *arguments: Any) -> Any:
        self.calls.append("get")
        return self._cluster.get(kind, *arguments)

    def patch(self, kind: Kind, *arguments: Any, **more: Any) -> Any:
        self.calls.append("patch")
        if self.broken:
            raise ServiceUnavailable("not now")
        return self._cluster.patch(kind, *arguments, **more)


def test_a_signal_costs_one_request(cluster: EmbeddedCluster, job: Job) -> None:
    recording = Recording(cluster)
    with Waiter(recording, job, AT_ONCE) as waiter:
        eventually(lambda: recording.calls == ["get"], what="the connection is opened")
        waiter.suspend_now()
        assert recording.calls == ["get", "patch"]
    suspended = current(cluster, job)
    assert suspended["spec"]["suspend"] is True
    assert annotations_of(suspended)[names.SUSPENDED_BY_ANNOTATION] == names.suspended_by_us(suspended["metadata"]["generation"])
    again = submit_or_adopt(Submission(cluster, REQUEST, STEP, "default"))
    assert again.adopted
    assert again.trainjob["spec"]["suspend"] is False


def ended(cluster: EmbeddedCluster, job: Job, set_status: Any) -> Job:
    done: Job = set_status(job, "Complete")
    return done


def suspended_by_a_person(cluster: EmbeddedCluster, job: Job, _set_status: Any) -> Job:
    cluster.patch(TRAINJOB, name_of(job), {"spec": {"suspend": True}}, "default")
    return job  # not seen yet


def replaced(cluster: EmbeddedCluster, job: Job, _set_status: Any) -> Job:
    cluster.delete(TRAINJOB, name_of(job), "default")
    submit_or_adopt(Submission(cluster, REQUEST, STEP, "default"))
    return job


def of_another(cluster: EmbeddedCluster, job: Job, _set_status: Any) -> Job:
    return cluster.patch(TRAINJOB, name_of(job), {"metadata": {"annotations": {names.OWNER_ANNOTATION: None}}}, "default")


@pytest.mark.parametrize("change", [ended, suspended_by_a_person, replaced, of_another])
def test_a_job_that_is_not_to_be_suspended_is_left_alone(
    cluster: EmbeddedCluster, job: Job, set_status: Any, change: Callable[..., Job]
) -> None:
    seen = change(cluster, job, set_status)
    before = current(cluster, job)
    with Waiter(cluster, job, AT_ONCE) as waiter:
        waiter.observe(seen)
        waiter.suspend_now()
    assert current(cluster, job) == before


def test_the_lease_is_renewed_while_the_client_waits(cluster: EmbeddedCluster, job: Job) -> None:
    with Waiter(cluster, job, WaiterOptions(lease_seconds=1)):
        eventually(lambda: waiter_lease_of(current(cluster, job)) is not None, what="the first renewal")
    lease = waiter_lease_of(current(cluster, job))
    assert lease is not None
    assert lease.seconds == MIN_SECONDS
    assert 0 < lease.seconds_left(datetime.now(UTC)) <= MIN_SECONDS


def leased(cluster: EmbeddedCluster, job: Job, *, ago: float) -> Job:
    patch = renewal_patch(job, 60, datetime.now(UTC) - timedelta(seconds=ago))
    return cluster.patch(TRAINJOB, name_of(job), patch, "default")


def reconcile(cluster: EmbeddedCluster, job: Job) -> float | None:
    return TrainJobReconciler(cluster, Settings, bundled=False).reconcile(("default", name_of(job)))


def test_the_controller_suspends_a_job_whose_client_is_gone(cluster: EmbeddedCluster, job: Job) -> None:
    leased(cluster, job, ago=61)
    assert reconcile(cluster, job) is None
    suspended = current(cluster, job)
    assert suspended["spec"]["suspend"] is True
    assert names.WAITER_LOST_ANNOTATION in annotations_of(suspended)
    assert "WaiterGone" in {event["reason"] for event in cluster.list(EVENT, "default").items}
    reconcile(cluster, job)
    again = submit_or_adopt(Submission(cluster, REQUEST, STEP, "default")).trainjob
    assert again["spec"]["suspend"] is False
    assert waiter_lease_of(again) is None, "an expired lease would suspend it again"
    assert names.WAITER_LOST_ANNOTATION not in annotations_of(again)


def test_a_controller_that_may_not_suspend_says_so_once_and_goes_on(
    cluster: EmbeddedCluster, job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    class ReadOnly(DelegatingCluster):
        def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Any) -> Any:
            if "spec" in patch:
                raise Forbidden("trainjobs may not be patched")
            return super().patch(kind, name, patch, namespace, **options)

    leased(cluster, job, ago=61)
    assert TrainJobReconciler(ReadOnly(cluster), Settings, bundled=False).reconcile(("default", name_of(job))) is None
    assert "left_job_not_ended" in caplog.text


def test_jobs_without_a_lease_or_that_have_ended_are_left_alone(cluster: EmbeddedCluster, job: Job, set_status: Any) -> None:
    assert reconcile(cluster, job) is None
    leased(cluster, job, ago=100)
    set_status(job, "Complete")
    assert reconcile(cluster, job) is None
    assert not current(cluster, job)["spec"].get("suspend")


@pytest.mark.parametrize(
    "annotations",
    [
        {names.WAITER_LEASE_ANNOTATION: "60"},
        {names.WAITER_LEASE_ANNOTATION: "-1", names.WAITER_RENEWED_ANNOTATION: "2026-01-01T00:00:00Z"},
        {names.WAITER_LEASE_ANNOTATION: "60", names.WAITER_RENEWED_ANNOTATION: "yesterday"},
        {names.WAITER_LEASE_ANNOTATION: "9" * 30, names.WAITER_RENEWED_ANNOTATION: "2026-01-01T00:00:00Z"},
    ],
)
def test_a_lease_that_cannot_be_read_is_none(job: Job, annotations: dict[str, str]) -> None:
    changed = {**job, "metadata": {**job["metadata"], "annotations": annotations}}
    assert waiter_lease_of(changed) is None


def test_a_client_that_had_been_cut_off_resumes_its_job(cluster: EmbeddedCluster, job: Job) -> None:
    leased(cluster, job, ago=61)
    cancel_version(cluster, current(cluster, job), CancelPolicy.suspend, lost_mark())
    with Waiter(cluster, job, WaiterOptions(lease_seconds=60)):
        eventually(lambda: not current(cluster, job)["spec"]["suspend"], what="the job goes on")


def test_a_job_that_somebody_else_has_suspended_stays_so(cluster: EmbeddedCluster, job: Job) -> None:
    cluster.patch(TRAINJOB, name_of(job), {"spec": {"suspend": True}}, "default")
    with Waiter(cluster, job, WaiterOptions(lease_seconds=60)):
        eventually(lambda: waiter_lease_of(current(cluster, job)) is not None, what="the first renewal")
    assert current(cluster, job)["spec"]["suspend"] is True


def test_adopting_a_running_job_ends_the_lease_of_an_earlier_client(cluster: EmbeddedCluster, job: Job) -> None:
    leased(cluster, job, ago=61)
    again = submit_or_adopt(Submission(cluster, REQUEST, STEP, "default"))
    assert waiter_lease_of(again.trainjob) is None


@pytest.fixture
def told() -> Iterator[list[int]]:
    """Signals that arrive at the handler of the test itself."""
    arrived: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _frame: arrived.append(number))
    yield arrived
    signal.signal(signal.SIGTERM, previous)


@pytest.mark.medium
def test_a_signal_sets_the_event_and_acts_once(told: list[int]) -> None:
    acted = threading.Event()
    times: list[int] = []
    with stop_on_signals() as stop:
        stop.at_once = lambda: (times.append(1), acted.set())  # type: ignore[func-returns-value]
        for _ in range(100_000):  # more than a pipe holds
            signal.raise_signal(signal.SIGTERM)
        assert acted.wait(10)
        assert stop.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    assert told == [signal.SIGTERM], "the handler of before is back"
    assert times == [1]


@pytest.mark.parametrize("relays", [True, False], ids=["by the thread", "by the wait, which is first"])
def test_a_signal_suspends_before_the_wait_ends(
    cluster: EmbeddedCluster, told: list[int], monkeypatch: pytest.MonkeyPatch, relays: bool
) -> None:
    recording = Recording(cluster)
    if not relays:
        monkeypatch.setattr("trainwright.jobs.wait.give_up._relay", lambda reader, _event: os.read(reader, 1))

    def end(_cluster: Any, job: Job) -> str:
        return str(current(cluster, job)["spec"].get("suspend"))

    threading.Thread(target=lambda: (eventually(lambda: cluster.list(TRAINJOB).items), os.kill(os.getpid(), 15))).start()
    with pytest.raises(Cancelled, match="was cancelled; True"):
        run_to_end(Submission(recording, program_request(), STEP, "default"), Waiting(on_signal=end, waiter=AT_ONCE))
    assert not told


def test_a_job_is_tied_to_each_workflow_that_waits_for_it(cluster: EmbeddedCluster) -> None:
    def workflow(name: str, namespace: str = "default") -> Workflow:
        reference = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": name, "uid": f"uid-of-{name}"}
        return Workflow(name, namespace, reference)

    for each in ("one", "one", "two"):
        submit_or_adopt(Submission(cluster, program_request(), STEP, "default", workflow=workflow(each)))
    submit_or_adopt(Submission(cluster, program_request(), STEP, "default", workflow=workflow("three", "elsewhere")))
    (job,) = cluster.list(TRAINJOB).items
    assert [owner["name"] for owner in job["metadata"]["ownerReferences"]] == ["one", "two"]
    assert labels_of(job)[names.WORKFLOW_LABEL] == "three"
