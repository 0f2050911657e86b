"""The containers of a TrainJob's pods whose logs can be looked at, by rank, and whether each has, or will have, a log."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from trainwright.api.objects import Obj, name_of, named, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import container_of_step, container_states, index_of, job_index_of, pods_of, step_of


class LogContainer(TypedDict):
    """`rank` is the completion index of the pod, `job` the index of its Job in the replicated job; `main` runs the step."""

    pod: str
    uid: str
    step: str
    job: int
    rank: int
    phase: str
    created: str
    container: str
    init: bool
    main: bool
    restarts: int
    state: str
    reason: str
    exit_code: int | None


def log_containers(cluster: Cluster, trainjob: Obj) -> list[LogContainer]:
    """Return the containers of all pods, by step, rank and age of the pod; init containers last. Raises ApiError."""
    return [entry for pod in pods_of(cluster, trainjob) for entry in _containers_of(pod)]


def _containers_of(pod: Obj) -> list[LogContainer]:
    main = container_of_step(pod)
    names = [(str(container["name"]), False) for container in pod["spec"].get("containers") or []]
    names += [(str(container["name"]), True) for container in pod["spec"].get("initContainers") or []]
    found = []
    for name, is_init in sorted(names, key=lambda entry: (entry[1], entry[0] != main)):
        state = container_state(pod, name)
        found.append(
            LogContainer(
                pod=name_of(pod),
                uid=uid_of(pod),
                step=step_of(pod),
                job=job_index_of(pod),
                rank=index_of(pod),
                phase=str((pod.get("status") or {}).get("phase") or "Pending"),
                created=str(pod["metadata"].get("creationTimestamp") or ""),
                container=name,
                init=is_init,
                main=not is_init and name == main,
                restarts=state.restarts,
                state=state.name,
                reason=state.reason,
                exit_code=state.exit_code,
            )
        )
    return found


class ContainerState(NamedTuple):
    """`name` is waiting, running or terminated; `reason` may be empty. `is_over`: it will not run again."""

    name: str
    reason: str
    restarts: int
    is_over: bool
    exit_code: int | None

    @property
    def has_run_ended(self) -> bool:
        """Whether the last run has ended, so that its log is complete; another one may follow."""
        return self.is_over or self.name == "terminated" or self.reason == "CrashLoopBackOff"


def container_state(pod: Obj, container: str) -> ContainerState:
    """Return the state of a container; one that the status does not mention yet is waiting."""
    entry = named(container_states(pod), container) or {}
    phase = str((pod.get("status") or {}).get("phase") or "")
    has_pod_ended = phase in ("Succeeded", "Failed")
    restarts = int(entry.get("restartCount") or 0)
    for name in ("running", "terminated", "waiting"):
        details = (entry.get("state") or {}).get(name)
        if details is not None:
            code = details.get("exitCode") if name == "terminated" else None
            is_over = has_pod_ended or (name == "terminated" and not _may_restart(pod, container, code))
            return ContainerState(name, str(details.get("reason") or ""), restarts, is_over, code)
    return ContainerState("waiting", str((pod.get("status") or {}).get("reason") or ""), restarts, has_pod_ended, None)


def _may_restart(pod: Obj, container: str, exit_code: int | None) -> bool:
    init = named((pod.get("spec") or {}).get("initContainers"), container)
    if init is not None and init.get("restartPolicy") == "Always":  # a sidecar
        return True
    policy = (pod.get("spec") or {}).get("restartPolicy") or "Always"
    return policy != "Never" and (exit_code != 0 or (policy == "Always" and init is None))
