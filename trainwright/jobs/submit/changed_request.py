"""Says in which fields a TrainJob differs from what its step would submit now: a DAG was edited, a template renders differently.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.objects import Obj, annotations_of, name_of

_MOST, _LONGEST = 8, 60
_OF_OTHERS = ("suspend", "managedBy", "time")
"""Fields that a queue, Kueue or the API server may have set."""
_ABSENT = object()
_INPUTS = {"dataset": names.DATASET_DIGEST_ANNOTATION, "model": names.MODEL_DIGEST_ANNOTATION}


def request_changes(existing: Obj, desired: Obj) -> str:
    """Return the differing fields of the spec, as `trainer.numNodes: 1 -> 2`; empty if only the code or its digest differs."""
    found = list(_changes(existing.get("spec") or {}, desired.get("spec") or {}, ""))
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def reason_to_begin_again(last: Obj, desired: Obj) -> str:
    """Say why an attempt resumes from no checkpoint of the `last` one of its step; empty if it may, as the same training.

    `desired` is its TrainJob as it would be in the folder of the last one.
    """
    if is_true(last, "Complete"):
        return f"the TrainJob {name_of(last)} of this step has succeeded: it is trained again"
    key = names.TRAINING_DIGEST_ANNOTATION
    before, after = (annotations_of(job).get(key) for job in (last, desired))
    if before is None or before == after:
        return ""
    changes = request_changes(last, desired) or "its code"
    return f"not resumed from the checkpoints of the TrainJob {name_of(last)}, because its request differs: {changes}"


def changed_input(existing: Obj, *, dataset: str, model: str) -> str:
    """Say that the job trains on another prepared dataset or model than these digests name, and what to do; empty if not so."""
    for kind, digest in (("dataset", dataset), ("model", model)):
        before = annotations_of(existing).get(_INPUTS[kind], "")
        if before and digest and before != digest:
            return (
                f"the {kind} has changed since this run began: it was {before}, and is {digest}\n"
                f"start a run with another run id; to resume this one, restore its {kind}; to train it again, delete the TrainJob "
                f"{name_of(existing)!r}"
            )
    return ""


def _changes(before: Any, after: Any, path: str) -> Iterator[str]:
    before, after = _by_name(before), _by_name(after)
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            if key not in _OF_OTHERS:
                yield from _changes(before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(old, new, f"{path}[{index}]")
    elif before != after:
        at = _first_difference(before, after) if isinstance(before, str) and isinstance(after, str) else 0
        yield f"{path}: {_shown(before, at)} -> {_shown(after, at)}"


def _by_name(value: Any) -> Any:
    """Return a list whose entries have unique names as an object, so that an entry that is added changes no other."""
    if not (isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value)):
        return value
    for key in ("name", "manager"):
        found = [entry.get(key) for entry in value]
        if all(isinstance(name, str) for name in found) and len(set(found)) == len(found):
            return dict(zip(found, value, strict=True))
    return value


def _first_difference(before: str, after: str) -> int:
    """Return where two texts begin to differ; 0 for short ones, which are shown as a whole."""
    if max(len(before), len(after)) <= _LONGEST:
        return 0
    return next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), min(len(before), len(after))
    )


def _shown(value: Any, at: int = 0) -> str:
    """Return a value as text, of a long one what stands around the position `at`."""
    if value is _ABSENT:
        return "nothing"
    if not isinstance(value, str):
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    begin = max(0, at - _LONGEST // 3)
    shown = value[begin : begin + _LONGEST]
    return f"{'...' if begin else ''}{shown!r}{'...' if begin + _LONGEST < len(value) else ''}"
