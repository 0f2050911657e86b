"""What a look at the pods of a job tells: the failure of any rank with its error, and that a node is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from factories import container_status, jobset, replicated_job, terminated
from support.scripted_logs import WithTexts
from support.virtual_time import VirtualClock

from trainwright.api.kinds import POD
from trainwright.api.objects import owner_reference
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.diagnosis.errors import CannotStart
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.diagnosis.failure_class import deadline_of
from trainwright.jobs.wait.job_observer import JobObserver, WaitSettings
from trainwright.jobs.wait.observer_memory import STALLED_SECONDS

READY = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]


RUNNING = container_status({"running": {}}, ready=True)


def crashing(code: int, seconds_ago: float = 1.0) -> dict[str, Any]:
    finished = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return container_status({"running": {}}, restartCount=1, lastState=terminated(code, at=finished))


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
