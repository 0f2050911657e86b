"""The mark of a suspension by Trainwright, in an annotation: what it suspended it may resume, other suspensions are kept.

The mark names the generation of the spec that it belongs to, so a later change of the spec, as by a user, makes it void. Pure.
"""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, generation_of, labels_of
from trainwright.api.phase import phase_of

MARKS = (
    names.SUSPENDED_BY_ANNOTATION,
    names.WAITER_LOST_ANNOTATION,
    names.WAITER_LEASE_ANNOTATION,
    names.WAITER_RENEWED_ANNOTATION,
    names.WAITING_POD_ANNOTATION,
    names.STOPPED_EARLY_ANNOTATION,
    names.VERDICT_ANNOTATION,
)
"""Removed from a job that is resumed. An expired lease, or a waiter whose run has ended, would suspend it again at once."""


def suspension_mark(obj: Obj) -> dict[str, str]:
    """Return the annotation to set in the same write as `spec.suspend`, which makes the next generation of this object."""
    return {names.SUSPENDED_BY_ANNOTATION: names.suspended_by_us(generation_of(obj) + 1)}


def early_stop_reason(trainjob: Obj) -> str:
    """Return why the job was stopped early; empty if it was not, has ended, or was resumed since."""
    if not trainjob["spec"].get("suspend") or phase_of(trainjob).is_final:
        return ""
    return annotations_of(trainjob).get(names.STOPPED_EARLY_ANNOTATION, "")


def is_queued(trainjob: Obj) -> bool:
    """Whether its queue has suspended the job, and nobody else."""
    is_suspended = bool(trainjob["spec"].get("suspend")) and names.SUSPENDED_BY_ANNOTATION not in annotations_of(trainjob)
    return is_suspended and names.QUEUE_LABEL in labels_of(trainjob) and not phase_of(trainjob).is_final
