"""Updates of a TrainJob: which objects are applied again, and which changes its JobSet would reject.

Source: Trainer's rules of re-application (reference section 2.19) and JobSet's immutability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.materialize.assembly import materialize
from trainwright.materialize.settings import Settings

Existing = Callable[[Obj], Obj | None]
"""Returns the cluster's object with the same kind, API group, namespace and name, or None."""
_PARTS = ("runtimePatches", "trainer", "initializer")


def objects_to_apply(objects: list[Obj], trainjob: Obj, existing: Existing) -> list[Obj]:
    """Return the objects of a TrainJob to apply now, in order.

    A running JobSet is not updated, nor is the PodGroup of a running TrainJob. Secrets are created once, since changed keys
    would break a running job.
    """
    suspended = bool(trainjob["spec"].get("suspend"))
    return [obj for obj in objects if (found := existing(obj)) is None or _must_apply(obj, found, suspended)]


def _must_apply(obj: Obj, found: Obj, suspended: bool) -> bool:
    if obj["kind"] == "JobSet":
        return suspended or bool(found["spec"].get("suspend"))
    if obj["kind"] == "PodGroup":
        return suspended
    return bool(obj["kind"] != "Secret")


def update_problems(old: Obj, new: Obj, runtime: Obj, *, settings: Settings | None = None) -> Iterator[Problem]:
    """Yield changes of a suspended TrainJob that its JobSet would reject; upstream admits them and then fails forever.

    `runtime` is the one that the TrainJob was built from. Both versions must be admitted. Changes of a running TrainJob are
    not checked, because they are not applied to the JobSet.
    """
    if not (old["spec"].get("suspend") or new["spec"].get("suspend")):
        return
    before, after = _jobset(old, runtime, settings), _jobset(new, runtime, settings)
    if before is None or after is None:
        return
    try:
        admit(admit(after).object, admit(before).object)  # an apply keeps the defaults of the creation
    except Invalid as error:
        changed = [part for part in _PARTS if old["spec"].get(part) != new["spec"].get(part)] or ["suspend"]
        for problem in error.problems:
            reason = f"Forbidden: its existing JobSet rejects this change: {problem}"
            yield Problem(f"spec.{changed[0]}", reason, "FieldValueForbidden")


def _jobset(trainjob: Obj, runtime: Obj, settings: Settings | None) -> Obj | None:
    built = materialize(trainjob, runtime, settings=settings)
    return built[-1] if built else None
