"""After the first time: which objects are sent again, and which changes of a TrainJob its JobSet would not take.

Source: Trainer's rules of re-application (reference section 2.19) and JobSet's immutability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainwright.api.admission import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.materialize.assembly import materialize
from trainwright.materialize.settings import Settings

Existing = Callable[[Obj], Obj | None]
"""What the cluster has under an object's kind, API group, namespace and name."""
_PARTS = ("runtimePatches", "trainer", "initializer")


def due(objects: list[Obj], trainjob: Obj, existing: Existing) -> list[Obj]:
    """The objects of a TrainJob that are to be sent now, in their order.

    A running JobSet is left alone, so is the PodGroup of a running TrainJob; Secrets are made once, since keys that changed
    under a running job would lock its pods out.
    """
    suspended = bool(trainjob["spec"].get("suspend"))
    return [obj for obj in objects if (found := existing(obj)) is None or _is_due(obj, found, suspended)]


def _is_due(obj: Obj, found: Obj, suspended: bool) -> bool:
    if obj["kind"] == "JobSet":
        return suspended or bool(found["spec"].get("suspend"))
    if obj["kind"] == "PodGroup":
        return suspended
    return bool(obj["kind"] != "Secret")


def update_problems(old: Obj, new: Obj, runtime: Obj, *, settings: Settings | None = None) -> Iterator[Problem]:
    """What a change of a suspended TrainJob asks of its JobSet that JobSets refuse; upstream admits it and then fails for ever.

    `runtime` is the one that the TrainJob was built from. Both versions must have been admitted. A change of a running
    TrainJob is not looked at: it does not reach the JobSet.
    """
    if not (old["spec"].get("suspend") or new["spec"].get("suspend")):
        return
    before, after = _jobset(old, runtime, settings), _jobset(new, runtime, settings)
    if before is None or after is None:
        return
    try:
        admit(admit(after).object, admit(before).object)  # an apply leaves what was filled in at creation where it is
    except Invalid as error:
        changed = [part for part in _PARTS if old["spec"].get(part) != new["spec"].get(part)] or ["suspend"]
        for problem in error.problems:
            reason = f"Forbidden: its JobSet exists and takes no such change: {problem}"
            yield Problem(f"spec.{changed[0]}", reason, "FieldValueForbidden")


def _jobset(trainjob: Obj, runtime: Obj, settings: Settings | None) -> Obj | None:
    built = materialize(trainjob, runtime, settings=settings)
    return built[-1] if built else None
