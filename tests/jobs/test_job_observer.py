"""What a look at the pods of a job tells: the failure of any rank with its error, and that a node is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from factories import container_status, event, jobset, replicated_job, terminated
from support.scripted_logs import WithTexts
from support.virtual_time import VirtualClock

from trainwright.api.kinds import POD
from trainwright.api.objects import owner_reference
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.diagnosis.errors import CannotStart
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.diagnosis.failure_class import deadline_of
from trainwright.jobs.wait.job_events import EventTracker
from trainwright.jobs.wait.job_observer import STALLED_SECONDS, JobObserver, Observation, WaitSettings

READY = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
RUNNING = container_status({"running": {}}, ready=True)


def crashing(code: int, seconds_ago: float = 1.0) -> dict[str, Any]:
    finished = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return container_status({"running": {}}, restartCount=1, lastState=terminated(code, at=finished))


def seen_by(observer: JobObserver, job: dict[str, Any]) -> Observation:
    observation = observer.observe(job)
    assert observation is not None
    return observation


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        (
            1,
            "Traceback (most recent call last):\n  File\nValueError: only rank 1 fails\n",
            "exited 1: ValueError: only rank 1 fails",
        ),
        (1, "step 1\nlast line\n", "exited 1: last line"),
        (1, "torch.OutOfMemoryError: no\n", "exited 1 (the GPU was out of memory): torch.OutOfMemoryError: no"),
        (1, "", "exited 1"),
    ],
)
def test_the_failure_of_a_rank_carries_its_error(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any, code: int, log: str, said: str
) -> None:
    job = set_status(job, jobsStatus=READY)
    add_pod(job, 0, phase="Running", containerStatuses=[RUNNING])
    pod = add_pod(job, 1, phase="Running", containerStatuses=[crashing(code)])
    observer = JobObserver(WithTexts(cluster, "", log), job)
    assert seen_by(observer, job).failures == (f"pod {pod['metadata']['name']} {said}",)


def test_a_container_that_a_probe_killed_says_so(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    job = set_status(job, jobsStatus=READY)
    name = add_pod(job, 0, phase="Running", containerStatuses=[crashing(137)])["metadata"]["name"]
    told = {"Unhealthy": "Liveness probe failed: timeout", "Killing": "Container node failed liveness probe, will be restarted"}
    for number, (reason, message) in enumerate(told.items()):
        cluster.create(event("Pod", name, reason, message, f"2026-01-01T00:00:0{number}Z", type="Warning"))
    (failure,) = seen_by(JobObserver(WithTexts(cluster, "step 1\n"), job), job).failures
    assert failure == f"pod {name} exited 137 (stopped by its node: its liveness probe failed: timeout)"


def test_a_deadline_names_the_rank_that_fails_and_shows_its_log(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    job = set_status(job, jobsStatus=READY)
    add_pod(job, 0, phase="Running", containerStatuses=[RUNNING])
    pod = add_pod(job, 1, phase="Running", containerStatuses=[crashing(1)])
    source: Any = WithTexts(cluster, "rank 0 is fine\n", "ValueError: only rank 1 fails\n")
    text = str(deadline_of(source, job, "too long", "run"))
    assert f"too long; pod {pod['metadata']['name']} exited 1; " in text
    assert text.endswith("\n    ValueError: only rank 1 fails")


def test_a_deadline_shows_rank_0_if_a_restart_is_long_past(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    job = set_status(job, jobsStatus=READY)
    add_pod(job, 0, phase="Running", containerStatuses=[RUNNING])
    add_pod(job, 1, phase="Running", containerStatuses=[crashing(1, seconds_ago=7200)])
    source: Any = WithTexts(cluster, "x" * 2000 + "\nrank 0 is fine\n", "ValueError: only rank 1 fails\n")
    text = str(deadline_of(source, job, "too long", "run"))
    assert "exited" not in text
    assert text.endswith("\n    rank 0 is fine")
    assert max(map(len, text.splitlines())) < 600


def test_a_run_is_not_taken_for_the_one_that_has_begun_meanwhile(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    """A pod was listed with a run that had ended; when its log is read, the container runs again."""
    job = set_status(job, jobsStatus=READY)
    ended = terminated(1, at="2026-01-01T00:00:05Z")
    add_pod(job, 0, phase="Running", containerStatuses=[{**RUNNING, "ready": False, "state": ended}])
    source: Any = WithTexts(cluster)
    source.logs = lambda *_, previous=False, **__: [
        b"2026-01-01T00:00:04.1Z ValueError: why\n" if previous else b"2026-01-01T00:00:07.5Z anew\n"
    ]
    (failure,) = seen_by(JobObserver(source, job), job).failures
    assert failure.endswith("exited 1: ValueError: why")


def observe_until(observer: JobObserver, job: dict[str, Any], clock: VirtualClock, seconds: float) -> None:
    while clock.now < seconds:
        observer.observe(job)
        clock.sleep(max(observer.seconds_left(), 0.1))


def test_a_missing_secret_is_waited_for_for_a_minute(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    job = set_status(job, jobsStatus=[{**READY[0], "ready": 0}])
    waiting = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "nope" not found'}}
    add_pod(job, 0, phase="Pending", containerStatuses=[{**RUNNING, "ready": False, "state": waiting}])
    clock = VirtualClock()
    with clock.installed():
        observe_until(JobObserver(cluster, job, WaitSettings(fail_if_stuck=False)), job, clock, 300)
        clock.jump(0.0)
        with pytest.raises(CannotStart) as raised:
            observe_until(JobObserver(cluster, job), job, clock, 300)
        assert STALLED_SECONDS + 60 <= clock.now < STALLED_SECONDS + 66
    assert str(raised.value).endswith(
        'is waiting: CreateContainerConfigError: secret "nope" not found; create what is missing, or correct its name, '
        "and submit the job again"
    )
    assert exit_code_of(raised.value) == ExitCode.start_timeout


def test_a_node_that_does_not_answer_is_said_at_once_although_the_job_runs(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    """One Job of two is ready: the TrainJob stays Running."""
    job = set_status(job, jobsStatus=READY)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    add_pod(job, 0, phase="Running", containerStatuses=[RUNNING], conditions=[ready])
    other = add_pod(job, 1, phase="Running", containerStatuses=[RUNNING], conditions=[ready])
    observer, tracker = JobObserver(cluster, job), EventTracker()
    tracker.observe_status(job)
    clock = VirtualClock()
    with clock.installed():
        assert seen_by(observer, job).reason == ""
        silent = {"status": {"conditions": [{**ready, "status": "False"}]}}
        cluster.patch(POD, other["metadata"]["name"], silent, "default", subresource="status")
        clock.jump(clock.now + observer.seconds_left())
        observation = seen_by(observer, job)
        assert clock.now <= 10
        assert "has not answered since 2026-01-01T00:00:00Z" in str(observation.reason)
        assert tracker.observe_pods(observation)
        assert not tracker.observe_status(set_status(job, jobsStatus=[{**READY[0], "active": 2}])), "it is said once"
        cluster.patch(POD, other["metadata"]["name"], {"status": {"conditions": [ready]}}, "default", subresource="status")
        clock.jump(clock.now + observer.seconds_left())
        assert seen_by(observer, job).reason == ""


def test_a_jobset_that_cannot_be_read_is_not_asked_for_at_each_look(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    get = cluster.get

    def noted(kind: Any, *more: Any) -> Any:
        asked.append(kind.kind)
        return get(kind, *more)

    monkeypatch.setattr(cluster, "get", noted)
    monkeypatch.setattr("trainwright.jobs.state.started_pods.StartedPods.read", lambda *_, **__: None)
    job = set_status(job, jobsStatus=READY)
    add_pod(job, 0, phase="Running", containerStatuses=[RUNNING])
    observer = JobObserver(cluster, job, WaitSettings(interval=lambda _phase: 0.0))
    asked.clear()
    for _ in range(5):
        seen_by(observer, job)
    assert asked == ["JobSet"]


class Asked(DelegatingCluster):
    """The cluster; notes all requests except lists of pods, which a watch answers."""

    def __init__(self, cluster: EmbeddedCluster):
        super().__init__(cluster)
        self.requests = list[str]()

    def get(self, kind: Any, *arguments: Any) -> Any:
        self.requests.append(kind.kind)
        return self._cluster.get(kind, *arguments)

    def list(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        self.requests += [kind.kind] if kind != POD else []
        return self._cluster.list(kind, *arguments, **more)


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 Insufficient cpu.",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    "pod",
    [{"phase": "Pending", "conditions": [UNSCHEDULABLE]}, {"phase": "Pending"}, None],
    ids=["unschedulable", "without a reason", "not created"],
)
def test_a_job_that_waits_costs_few_requests(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any, pod: dict[str, Any] | None
) -> None:
    job = set_status(job, jobsStatus=[{**READY[0], "ready": 0}])
    owned = {"name": job["metadata"]["name"], "ownerReferences": [owner_reference(job)]}
    cluster.create(jobset(job["metadata"]["name"], replicated_job("node"), metadata=owned))
    if pod is not None:
        add_pod(job, **pod)
    asked, clock, minutes = Asked(cluster), VirtualClock(), 10
    observer = JobObserver(asked, job)
    with clock.installed():
        observe_until(observer, job, clock, 60)
        asked.requests.clear()
        observe_until(observer, job, clock, 60 + 60 * minutes)
    assert 0 < len(asked.requests) <= 4 * minutes


def test_an_event_is_found_although_nothing_else_changes(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    job = set_status(job, jobsStatus=[{**READY[0], "ready": 0}])
    name = add_pod(job, phase="Pending")["metadata"]["name"]
    observer, clock = JobObserver(cluster, job), VirtualClock()
    with clock.installed():
        observe_until(observer, job, clock, 600)
        cluster.create(event("Pod", name, "FailedMount", "timed out waiting", "2026-12-31T00:00:00Z", type="Warning"))
        tracker = EventTracker()
        tracker.observe_status(job)
        while tracker.progress is None or not tracker.progress.note:
            assert clock.now < 600 + 65
            if (observation := observer.observe(job)) is not None:
                tracker.observe_pods(observation)
            clock.sleep(max(observer.seconds_left(), 0.1))
    assert tracker.progress.note == f"pod {name} is waiting: FailedMount: timed out waiting"


def test_a_changed_pod_is_asked_about_at_once(
    cluster: EmbeddedCluster, job: dict[str, Any], add_pod: Any, set_status: Any
) -> None:
    job = set_status(job, jobsStatus=[{**READY[0], "ready": 0}])
    name = add_pod(job, phase="Pending")["metadata"]["name"]
    asked, clock = Asked(cluster), VirtualClock()
    observer = JobObserver(asked, job)
    with clock.installed():
        observe_until(observer, job, clock, 600)
        asked.requests.clear()
        cluster.patch(POD, name, {"status": {"conditions": [UNSCHEDULABLE]}}, "default", subresource="status")
        clock.sleep(observer.seconds_left())
        assert "0/1 nodes are available" in str(seen_by(observer, job).reason)
    assert "JobSet" in asked.requests
