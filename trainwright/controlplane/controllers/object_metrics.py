"""Metrics of TrainJobs, JobSets and pods: phases and restarts.

Updated on every change, so that the cost of a scrape does not depend on the number of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.reflector import Handler

_POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class PhaseCounter:
    """Counts the objects of one kind. `observe` is for one thread; all threads may read."""

    def __init__(self, phases: Sequence[str], phase: Callable[[Obj], str], restarts: Callable[[Obj], int] = lambda obj: 0):
        self.phases = dict.fromkeys(phases, 0)
        self.restarts = 0
        """Restarts since the start of this process; restarts before an object is first seen are not counted."""
        self._phase, self._restarts = phase, restarts
        self._known: dict[str, tuple[str, int]] = {}

    def observe(self, event: str, obj: Obj) -> None:
        uid = uid_of(obj)
        before = self._known.get(uid)
        if event == "DELETED":
            if before is not None:
                self.phases[before[0]] -= 1
                del self._known[uid]
            return
        now = (self._phase(obj), self._restarts(obj))
        if now == before:
            return
        self._known[uid] = now
        self.phases[now[0]] += 1
        if before is not None:
            self.phases[before[0]] -= 1
            self.restarts += max(now[1] - before[1], 0)


class ObjectMetrics:
    """Counters of TrainJobs, JobSets and, if they are watched, pods."""

    def __init__(self, *, pods: bool):
        self._trainjobs = PhaseCounter([str(phase) for phase in Phase], lambda job: str(phase_of(job)))
        self._jobsets = PhaseCounter(("",), lambda jobset: "", _jobset_restarts)
        self._pods = PhaseCounter(_POD_PHASES, _pod_phase, _container_restarts) if pods else None

    def handlers(self) -> Mapping[Kind, Handler]:
        handlers = {TRAINJOB: self._trainjobs.observe, JOBSET: self._jobsets.observe}
        return handlers | ({POD: self._pods.observe} if self._pods is not None else {})

    def families(self) -> list[Metric]:
        families = [_phases("trainwright_trainjobs", "TrainJobs by phase.", self._trainjobs)]
        families.append(CounterMetricFamily("trainwright_jobset_restarts", "Restarts of JobSets.", value=self._jobsets.restarts))
        if self._pods is not None:
            restarts = self._pods.restarts
            families.append(_phases("trainwright_pods", "Pods by phase.", self._pods))
            families.append(
                CounterMetricFamily("trainwright_container_restarts", "Restarts of containers in their pod.", value=restarts)
            )
        return families


def _phases(name: str, about: str, counter: PhaseCounter) -> Metric:
    family = GaugeMetricFamily(name, about, labels=["phase"])
    for phase, count in counter.phases.items():
        family.add_metric([phase], count)
    return family


def _pod_phase(pod: Obj) -> str:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    return phase if phase in _POD_PHASES else "Unknown"


def _container_restarts(pod: Obj) -> int:
    status = pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return sum(container.get("restartCount") or 0 for container in statuses)


def _jobset_restarts(jobset: Obj) -> int:
    return int((jobset.get("status") or {}).get("restarts") or 0)
