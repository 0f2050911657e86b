"""A TrainJob as a row of the list: what people look for, filter by and sort by. Pure, but for the nodes of its runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from trainwright.api import names
from trainwright.api.conditions import condition
from trainwright.api.objects import Obj, annotations_of, is_deleting, labels_of, name_of, namespace_of, uid_of
from trainwright.api.phase import Phase, phase_of
from trainwright.api.verdict import verdict_of
from trainwright.jobs.state.progress import progress_of
from trainwright.text.foreign_texts import one_line
from trainwright.ui.jobs.creator import Creator, creator_of

_MAX_REASON, _MAX_METRICS, _MAX_METRIC = 300, 50, 64


class JobRow(TypedDict):
    """Times are RFC 3339 in UTC; `nodes` is 0 if not known; `percent` None if nothing was reported."""

    uid: str
    namespace: str
    name: str
    runtime: str
    phase: str
    reason: str
    percent: int | None
    remaining: int | None
    metrics: dict[str, str]
    nodes: int
    created: str
    ended: str
    queue: str
    creator: Creator
    deleting: bool


def row_of(trainjob: Obj, nodes_of_runtime: Callable[[Obj, str], int], jobset: Obj | None = None) -> JobRow:
    """Return the row of a job. `nodes_of_runtime` returns the nodes that a runtime reference has in a namespace, 0 if unknown."""
    progress, phase = progress_of(trainjob), phase_of(trainjob, jobset)
    spec = trainjob["spec"]
    reference, own = spec.get("runtimeRef") or {}, (spec.get("trainer") or {}).get("numNodes")
    metrics = {name[:_MAX_METRIC]: value[:_MAX_METRIC] for name, value in progress.metrics[:_MAX_METRICS]}
    return JobRow(
        uid=uid_of(trainjob),
        namespace=namespace_of(trainjob),
        name=name_of(trainjob),
        runtime=str(reference.get("name") or ""),
        phase=phase.value,
        reason=one_line(_reason(trainjob, phase, progress.note))[:_MAX_REASON],
        percent=100 if phase is Phase.Succeeded and progress.percent is not None else progress.percent,
        remaining=None if phase.is_final else progress.remaining_seconds,
        metrics=metrics,
        nodes=int(own) if isinstance(own, int) else nodes_of_runtime(reference, namespace_of(trainjob)),
        created=str(trainjob["metadata"].get("creationTimestamp") or ""),
        ended=_ended(trainjob),
        queue=labels_of(trainjob).get(names.QUEUE_LABEL, ""),
        creator=creator_of(trainjob),
        deleting=is_deleting(trainjob),
    )


def _reason(trainjob: Obj, phase: Phase, note: str) -> str:
    if phase.is_final:
        ended = final_condition(trainjob) or {}
        return f"{ended.get('reason', '')}: {ended.get('message', '')}".strip(": ") if phase is Phase.Failed else ""
    if note:
        return note
    if phase is Phase.Suspended and (by := annotations_of(trainjob).get(names.SUSPENDED_BY_ANNOTATION)):
        return f"suspended by {by}"
    created = condition(trainjob, "Created")  # of an older Trainer; False if its objects could not be created
    if created is not None and created.get("status") == "False":
        return str(created.get("message") or "")
    return ""


def _ended(trainjob: Obj) -> str:
    return str((final_condition(trainjob) or {}).get("lastTransitionTime") or "")


def final_condition(trainjob: Obj) -> Obj | None:
    """Return the condition with which a job has ended, or what its client has written in its place; None before."""
    if (verdict := verdict_of(trainjob)) is not None:
        return {"reason": verdict.reason, "message": verdict.message, "lastTransitionTime": verdict.time}
    for kind in ("Complete", "Failed"):
        found = condition(trainjob, kind)
        if found is not None and found.get("status") == "True":
            return found
    return None
