"""Selects the fields of a write that field managers can own: the requested ones and defaults, not those that admission adds.

A write to the main resource covers everything except the status, a write to the status subresource only the status.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.schema.defaulting import apply_defaults
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import STRING, Struct
from trainwright.controlplane.apiserver.resources.registry import Strategy

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
"""Fields of built-in kinds that admission and the server add after decoding; no manager owns them unless the request sets them."""
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
"""Structs that Go types of built-in kinds always have, so that they do not count as set."""


@cache
def schema_of(kind: Kind) -> Struct:
    """The schema for the field sets of a kind."""
    admission_spec = ADMISSION_SPECS.get(kind.kind)
    if admission_spec is None or admission_spec.kind != kind:
        return Struct({"apiVersion": STRING, "kind": STRING, "metadata": struct_named("ObjectMeta")}, open=True)
    return replace(admission_spec.schema, fields={**admission_spec.schema.fields, "metadata": struct_named("ObjectMeta")})


def blank(kind: Kind) -> Obj:
    return {"metadata": {}, **_BLANKS.get(kind, {})}


def view(strategy: Strategy, asked: Obj, admitted: Obj, *, status: bool) -> Obj:
    """The part of a write that its field manager owns: `asked` is the request's object, `admitted` the one to be stored."""
    if status:
        return status_of(admitted)
    if strategy.custom:
        schema = schema_of(strategy.kind)
        read = asked if schema.open else apply_defaults(schema, asked)[0]
        return without_status(strategy.kind, read)
    seen = without_status(strategy.kind, admitted)
    for path in _ADDED_LATER.get(strategy.kind, ()):
        seen = _less(seen, asked, path)
    return seen


def without_status(kind: Kind, obj: Obj) -> Obj:
    """The part of an object that a write to the main resource covers."""
    return {key: value for key, value in obj.items() if key != "status"} if kind.status else obj


def status_of(obj: Obj) -> Obj:
    """The part of an object that a write to the status subresource covers."""
    return {"metadata": {}, "status": obj["status"]} if obj.get("status") is not None else {"metadata": {}}


def _less(seen: Any, asked: Any, path: tuple[str, ...]) -> Any:
    """`seen` without the field at `path`, unless the request sets it."""
    head, *rest = path
    if not isinstance(seen, dict) or head not in seen:
        return seen
    given = asked.get(head) if isinstance(asked, dict) else None
    if rest:
        return {**seen, head: _less(seen[head], given, tuple(rest))}
    return seen if given is not None else {key: value for key, value in seen.items() if key != head}
