"""What a look at the pods of a job tells: the failure of any rank with its error, and that a node is lost."""

from __future__ import annotations

from typing import Any

import pytest
from factories import jobset, replicated_job
from support.virtual_time import VirtualClock

from trainwright.api.kinds import POD
from trainwright.api.objects import owner_reference
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.wait.job_observer import JobObserver

READY = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]


def observe_until(observer: JobObserver, job: dict[str, Any], clock: VirtualClock, seconds: float) -> None:
    while clock.now < seconds:
        observer.observe(job)
        clock.sleep(max(observer.seconds_left(), 0.1))


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
