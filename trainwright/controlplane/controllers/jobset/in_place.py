"""In-place restarts (feature gate InPlaceRestart): containers are restarted without recreating pods.

Each pod has its attempt in an annotation. `currentInPlaceRestartAttempt` lets pods of that attempt run, once all have reached it;
`previousInPlaceRestartAttempt` restarts the containers of pods at or below it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.integers import parse_count
from trainwright.api.objects import Obj, annotations_of, name_of
from trainwright.controlplane.controllers.controller import TerminalError

ATTEMPT = "jobset.sigs.k8s.io/in-place-restart-attempt"
STRATEGY = "InPlaceRestart"


@dataclass(frozen=True)
class Attempts:
    """New values of the status; None: unchanged. `failed`: the pods have restarted too often."""

    current: int | None = None
    previous: int | None = None
    failed: bool = False


def is_in_place(jobset: Obj) -> bool:
    return (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy") == STRATEGY


def attempts(jobset: Obj, pods: list[Obj]) -> Attempts:
    """Compute the JobSet's attempts from its pods. Raises TerminalError for an invalid annotation or size."""
    status, budget = jobset.get("status") or {}, int(jobset["spec"]["failurePolicy"].get("maxRestarts") or 0)
    if max((_max_restarts(pod) for pod in pods), default=0) > budget:
        return Attempts(failed=True)
    live = [pod for pod in pods if (pod.get("status") or {}).get("phase") != "Failed"]
    seen = [_attempt(pod) for pod in live if ATTEMPT in annotations_of(pod)]
    highest = max(seen, default=0)
    uncounted = int(status.get("restarts") or 0) - int(status.get("restartsCountTowardsMax") or 0)
    if highest - uncounted > budget:
        return Attempts(failed=True)
    if len(seen) == _expected(jobset) and len(set(seen)) == 1:
        return Attempts(current=highest)
    if highest == 0:
        return Attempts()
    return Attempts(previous=max(highest - 1, int(status.get("previousInPlaceRestartAttempt") or 0)))


def _max_restarts(pod: Obj) -> int:
    status = pod.get("status") or {}
    containers = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return max((int(container.get("restartCount") or 0) for container in containers), default=0)


def _attempt(pod: Obj) -> int:
    text = annotations_of(pod)[ATTEMPT]
    number = parse_count(text)
    if number is None:
        raise TerminalError(f"the annotation {ATTEMPT} of Pod {name_of(pod)} must be a number, not {text!r}")
    return number


def _expected(jobset: Obj) -> int:
    """Return the total number of pods of the JobSet."""
    total = 0
    for replicated in jobset["spec"].get("replicatedJobs") or []:
        spec = replicated["template"]["spec"]
        if spec.get("parallelism") is None or spec["parallelism"] != spec.get("completions"):
            raise TerminalError(
                f"restarts in place need equal parallelism and completions in replicated job {replicated['name']}"
            )
        total += int(replicated.get("replicas", 1)) * int(spec["parallelism"])
    return total
