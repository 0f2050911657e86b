"""The containers of a TrainJob's pods whose logs can be looked at, by rank. Pure, but for the list of the pods."""

from __future__ import annotations

from typing import TypedDict

from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.state.pods import container_of_step, index_of, job_index_of, pods_of, step_of
from trainwright.ui.logs.container_run import container_state


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
