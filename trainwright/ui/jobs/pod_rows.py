"""The pods of a TrainJob as the page shows them: where they run, how their containers are or have ended, and restarts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, is_deleting, name_of, uid_of
from trainwright.jobs.diagnosis.pod_failure import describe_exit
from trainwright.jobs.state.pod_history import SeenPod
from trainwright.jobs.state.pods import place_of
from trainwright.text.foreign_texts import one_line

_MAX_TEXT = 1000
_NEVER = "1970-01-01T"
"""When a container began that could not be started, as a kubelet says."""


class Run(TypedDict):
    """One run of a container; `code` is None while it has not ended."""

    started: str
    ended: str
    code: int | None
    reason: str
    message: str


class ContainerRow(TypedDict):
    """`runs` are those that are known, oldest first: of earlier ones, Kubernetes keeps only the last."""

    name: str
    init: bool
    state: str
    detail: str
    restarts: int
    runs: list[Run]


class PodRow(TypedDict):
    """`gone` is whether it was deleted; what is shown is then what was last seen of it."""

    uid: str
    name: str
    step: str
    job: int
    index: int
    attempt: int
    phase: str
    detail: str
    node: str
    restarts: int
    created: str
    scheduled: str
    gone: bool
    deleting: bool
    containers: list[ContainerRow]


def pod_rows(pods: Iterable[Obj], seen: Iterable[SeenPod]) -> list[PodRow]:
    """Return the current pods, and those that are gone, sorted by step, index and age."""
    present = {uid_of(pod): pod for pod in pods}
    rows = [_row(present.get(uid_of(each.pod), each.pod), each) for each in seen]
    return sorted(rows, key=lambda row: (row["step"], row["job"], row["index"], row["created"], row["name"]))


def _row(pod: Obj, seen: SeenPod) -> PodRow:
    status, place = pod.get("status") or {}, place_of(pod)
    inits, mains = status.get("initContainerStatuses") or [], status.get("containerStatuses") or []
    containers = [
        *(_container(entry, seen, init=True) for entry in inits),
        *(_container(entry, seen, init=False) for entry in mains),
    ]
    return PodRow(
        uid=uid_of(pod),
        name=name_of(pod),
        step=place.step,
        job=place.job,
        index=place.completion_index,
        attempt=seen.restart_attempt,
        phase=str(status.get("phase") or "Pending"),
        detail=_detail(pod)[:_MAX_TEXT],
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        restarts=sum(container["restarts"] for container in containers),
        created=seen.created,
        scheduled=_scheduled(pod),
        gone=seen.is_gone,
        deleting=is_deleting(pod) and not seen.is_gone,
        containers=containers,
    )


def _detail(pod: Obj) -> str:
    """Return what is wrong with a pod as a whole, in words; its containers say what is wrong with them."""
    status = pod.get("status") or {}
    if status.get("reason"):
        return one_line(f"{status['reason']}: {status.get('message') or ''}").removesuffix(": ")
    if (disrupted := condition(pod, "DisruptionTarget")) is not None and disrupted.get("status") == "True":
        return one_line(f"{disrupted.get('reason')}: {disrupted.get('message') or ''}").removesuffix(": ")
    placed = condition(pod, "PodScheduled")
    if placed is not None and placed.get("status") == "False":
        return one_line(f"{placed.get('reason')}: {placed.get('message') or ''}").removesuffix(": ")
    return ""


def _scheduled(pod: Obj) -> str:
    found = condition(pod, "PodScheduled")
    return str(found.get("lastTransitionTime") or "") if found is not None and found.get("status") == "True" else ""


def _container(entry: Obj, seen: SeenPod, *, init: bool) -> ContainerRow:
    name, state = str(entry.get("name") or ""), entry.get("state") or {}
    runs: dict[str, Run] = {
        key.finished: _run(ended) for key, ended in seen.failed_runs.items() if key.container == name and key.finished
    }
    for known in (entry.get("lastState") or {}, state):
        if (ended := known.get("terminated")) is not None:
            runs[str(ended.get("finishedAt") or "")] = _run(ended)
    current = state.get("running")
    listed = [runs[finished] for finished in sorted(runs)]
    if current is not None:
        listed.append(Run(started=str(current.get("startedAt") or ""), ended="", code=None, reason="", message=""))
    return ContainerRow(
        name=name,
        init=init,
        state=next((kind for kind in ("running", "terminated", "waiting") if kind in state), "waiting"),
        detail=_state_text(state)[:_MAX_TEXT],
        restarts=int(entry.get("restartCount") or 0),
        runs=listed,
    )


def _run(ended: Obj) -> Run:
    started, finished = str(ended.get("startedAt") or ""), str(ended.get("finishedAt") or "")
    return Run(
        started=finished if started.startswith(_NEVER) else started,
        ended=finished,
        code=int(ended.get("exitCode") or 0),
        reason=str(ended.get("reason") or ""),
        message=str(ended.get("message") or "")[:_MAX_TEXT],
    )


def _state_text(state: Obj) -> str:
    if (ended := state.get("terminated")) is not None:
        return one_line(describe_exit(ended)) if ended.get("exitCode") else "completed"
    if (waiting := state.get("waiting")) is not None:
        return one_line(f"{waiting.get('reason') or 'waiting'}: {waiting.get('message') or ''}").removesuffix(": ")
    return "running" if state.get("running") is not None else ""
