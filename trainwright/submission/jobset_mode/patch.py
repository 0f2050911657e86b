"""Converts a patch of a TrainJob to a patch of the JobSet that represents it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj
from trainwright.submission.jobset_mode.record import RESERVED_KEYS

_PRECONDITIONS = ("name", "namespace", "uid", "resourceVersion")
_ENTRY_FIELDS = ("labels", "annotations")


def jobset_patch(name: str, patch: Obj) -> Obj:
    """Return the merge patch of the JobSet for a merge patch of its TrainJob.

    Only labels, annotations and `spec.suspend` can be changed: the jobs of a JobSet are immutable. Raises Invalid.
    """
    if problems := list(_problems(patch)):
        raise Invalid.of("TrainJob", name, problems, "trainer.kubeflow.org")
    metadata = {
        field: value for field, value in (patch.get("metadata") or {}).items() if field in (*_PRECONDITIONS, *_ENTRY_FIELDS)
    }
    spec = {"spec": {"suspend": bool(patch["spec"]["suspend"])}} if "suspend" in (patch.get("spec") or {}) else {}
    return {**({"metadata": metadata} if metadata else {}), **spec}


def resumes(patch: Obj) -> bool:
    """Whether a JobSet patch sets `suspend` to false."""
    return (patch.get("spec") or {}).get("suspend") is False


def _problems(patch: Obj) -> Iterator[Problem]:
    for field, value in patch.items():
        if field in ("apiVersion", "kind"):
            continue
        if field not in ("metadata", "spec") or not isinstance(value, dict):
            yield _forbidden(field)
            continue
        known = (*_PRECONDITIONS, *_ENTRY_FIELDS) if field == "metadata" else ("suspend",)
        for inner, entries in value.items():
            if inner not in known:
                yield _forbidden(f"{field}.{inner}")
            elif inner in _ENTRY_FIELDS:
                yield from _entry_problems(f"{field}.{inner}", entries)


def _entry_problems(path: str, entries: Any) -> Iterator[Problem]:
    if not isinstance(entries, dict):  # null would remove the JobSet's own entries
        yield _forbidden(path)
        return
    for key in entries:
        if key in RESERVED_KEYS:
            yield _forbidden(f"{path}[{key}]")


def _forbidden(path: str) -> Problem:
    reason = "in jobset mode only labels, annotations and spec.suspend can be changed: delete the job and submit it again"
    return Problem(path, f"Forbidden: {reason}", "FieldValueForbidden")
