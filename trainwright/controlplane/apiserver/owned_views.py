"""What of an object its owners can own: what was asked for and what defaults made of it, not what admission added later.

A write of the object is about everything but the status, a write of the status about nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from trainwright.api import kinds
from trainwright.api.governed import GOVERNED
from trainwright.api.kinds import Kind
from trainwright.api.metadata_shapes import METADATA
from trainwright.api.objects import Obj
from trainwright.api.settling import settled
from trainwright.api.shapes import TEXT, Record, Sequence
from trainwright.controlplane.apiserver.registry import Strategy

_OWNERS = METADATA.fields["ownerReferences"]
_METADATA = Record(
    {
        **METADATA.fields,
        "finalizers": Sequence(TEXT, distinct=True),
        "ownerReferences": Sequence(replace(_OWNERS.item, atomic=True), keys=("uid",)),  # type: ignore[attr-defined]
    }
)
_JOB_LABELS = ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name")
_ADDED_LATER: dict[Kind, tuple[tuple[str, ...], ...]] = {
    kinds.POD: (("spec", "tolerations"), ("spec", "priority"), ("spec", "preemptionPolicy")),
    kinds.JOB: (
        ("spec", "selector"),
        *(("spec", "template", "metadata", "labels", label) for label in _JOB_LABELS),
        ("spec", "template", "metadata"),
        ("metadata", "labels"),
    ),
    kinds.SERVICE: (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "ipFamilies"), ("spec", "ipFamilyPolicy")),
    kinds.NAMESPACE: (("spec",),),
    kinds.CLAIM: (("metadata", "finalizers"),),
}
"""What admission and the server add to built-in kinds after they were read; it belongs to nobody unless it was asked for."""
_BLANKS: dict[Kind, Obj] = {
    kinds.POD: {"spec": {"containers": None}},
    kinds.JOB: {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}},
    kinds.SERVICE: {"spec": {}},
    kinds.EVENT: {"involvedObject": {}, "source": {}},
    kinds.NAMESPACE: {"spec": {}},
    kinds.CLAIM: {"spec": {"resources": {}}},
    kinds.LEASE: {"spec": {}},
    kinds.NODE: {"spec": {}},
}
"""What is there before anything is written: the records that built-in types always have."""


@cache
def shape_of(kind: Kind) -> Record:
    """The shape by which fields are told apart."""
    governed = GOVERNED.get(kind.kind)
    if governed is None or governed.kind != kind:
        return Record({"apiVersion": TEXT, "kind": TEXT, "metadata": _METADATA}, open=True)
    return replace(governed.shape, fields={**governed.shape.fields, "metadata": _METADATA})


def blank(kind: Kind) -> Obj:
    return {"metadata": {}, **_BLANKS.get(kind, {})}


def view(strategy: Strategy, asked: Obj, admitted: Obj, *, status: bool) -> Obj:
    """The part of a write that its author comes to own: `asked` as it came, `admitted` as it will be stored."""
    if status:
        return status_of(admitted)
    if strategy.custom:
        shape = shape_of(strategy.kind)
        read = asked if shape.open else settled(shape, asked)[0]
        return without_status(strategy.kind, read)
    seen = without_status(strategy.kind, admitted)
    for path in _ADDED_LATER.get(strategy.kind, ()):
        seen = _less(seen, asked, path)
    return seen


def without_status(kind: Kind, obj: Obj) -> Obj:
    """An object as a write of it, and not of its status, sees it."""
    return {key: value for key, value in obj.items() if key != "status"} if kind.status else obj


def status_of(obj: Obj) -> Obj:
    """An object as a write of its status sees it."""
    return {"metadata": {}, "status": obj["status"]} if obj.get("status") is not None else {"metadata": {}}


def _less(seen: Any, asked: Any, path: tuple[str, ...]) -> Any:
    """`seen` without what is at the path, unless that was asked for."""
    head, *rest = path
    if not isinstance(seen, dict) or head not in seen:
        return seen
    given = asked.get(head) if isinstance(asked, dict) else None
    if rest:
        return {**seen, head: _less(seen[head], given, tuple(rest))}
    return seen if given is not None else {key: value for key, value in seen.items() if key != head}
