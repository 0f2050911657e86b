"""How many TrainJobs and pods are in which phase, and how often they were restarted.

Counted as changes come, so that asking costs nothing: a scrape of ten thousand finished jobs is as quick as one of ten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainwright.api.kinds import JOBSET, POD, TRAINJOB, Kind
from trainwright.api.objects import Obj, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.cluster.reflector import Handler
from trainwright.controlplane.exposition import Family

_POD_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class Tally:
    """The objects of one kind. `see` is for one thread; anybody may read."""

    def __init__(self, phases: Sequence[str], phase: Callable[[Obj], str], restarts: Callable[[Obj], int] = lambda obj: 0):
        self.phases = dict.fromkeys(phases, 0)
        self.restarts = 0
        """Since we began to look: what an object had when it was first seen is not counted."""
        self._phase, self._restarts = phase, restarts
        self._known: dict[str, tuple[str, int]] = {}

    def see(self, event: str, obj: Obj) -> None:
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


class Census:
    """What is counted of TrainJobs, JobSets and, where they are watched, pods."""

    def __init__(self, *, pods: bool):
        self._trainjobs = Tally([str(phase) for phase in Phase], lambda job: str(phase_of(job)))
        self._jobsets = Tally(("",), lambda jobset: "", _jobset_restarts)
        self._pods = Tally(_POD_PHASES, _pod_phase, _container_restarts) if pods else None

    def handlers(self) -> Mapping[Kind, Handler]:
        handlers = {TRAINJOB: self._trainjobs.see, JOBSET: self._jobsets.see}
        return handlers | ({POD: self._pods.see} if self._pods is not None else {})

    def families(self) -> list[Family]:
        trainjobs = Family("trainwright_trainjobs", "gauge", "TrainJobs by phase.")
        restarts = Family("trainwright_jobset_restarts_total", "counter", "Times that a JobSet was started anew.")
        for phase, count in self._trainjobs.phases.items():
            trainjobs.add(count, ("phase", phase))
        restarts.add(self._jobsets.restarts)
        return [trainjobs, restarts, *self._pod_families()]

    def _pod_families(self) -> list[Family]:
        if self._pods is None:
            return []
        pods = Family("trainwright_pods", "gauge", "Pods by phase.")
        restarts = Family("trainwright_container_restarts_total", "counter", "Times that a container was restarted in its pod.")
        for phase, count in self._pods.phases.items():
            pods.add(count, ("phase", phase))
        restarts.add(self._pods.restarts)
        return [pods, restarts]


def _pod_phase(pod: Obj) -> str:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    return phase if phase in _POD_PHASES else "Unknown"


def _container_restarts(pod: Obj) -> int:
    status = pod.get("status") or {}
    of_all = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return sum(container.get("restartCount") or 0 for container in of_all)


def _jobset_restarts(jobset: Obj) -> int:
    return int((jobset.get("status") or {}).get("restarts") or 0)
