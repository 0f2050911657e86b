"""Converts the schemas of kinds to OpenAPI, for `kubectl explain` and for list merging in `kubectl apply` and `diff`."""

from __future__ import annotations

from typing import Any

from trainwright.api.admission.crds import openapi_schema
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.patching.strategic_merge import MERGE_KEYS, MERGED_SETS
from trainwright.controlplane.apiserver.managed_fields.managed_views import schema_of
from trainwright.controlplane.apiserver.resources.registry import strategy_of

_OPEN = "x-kubernetes-preserve-unknown-fields"
_TOLD = {
    "apiVersion": "The version of the schema of this object.",
    "kind": "The kind of this object.",
    "metadata": "Name, labels, annotations, owners.",
    "spec": "The desired state.",
    "status": "The observed state.",
}


def schema_for(kind: Kind) -> Obj:
    """The schema of a kind without references."""
    schema = schema_of(kind)
    openapi = openapi_schema(schema)
    if schema.open:
        openapi["properties"] |= {part: {"type": "object", _OPEN: True} for part in ("spec", "status")}
        openapi[_OPEN] = True
    if not strategy_of(kind).custom:
        _mark_lists(openapi, "")
    for name, text in _TOLD.items():
        if name in openapi.get("properties", {}):
            openapi["properties"][name].setdefault("description", text)
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {**openapi, "description": f"{kind.kind} of {kind.api_version}.", "x-kubernetes-group-version-kind": [gvk]}


def _mark_lists(openapi: Any, parent: str) -> None:
    """Annotate the lists of a built-in kind, in place, with their strategic merge patch strategy."""
    for name, inner in (openapi.get("properties") or {}).items():
        key = MERGE_KEYS.get(f"{parent}.{name}") or MERGE_KEYS.get(name)
        items = inner.get("items") or {}
        if inner.get("type") == "array" and key in (items.get("properties") or {}):
            inner["x-kubernetes-patch-merge-key"] = key
            inner["x-kubernetes-patch-strategy"] = "merge,retainKeys" if name == "volumes" else "merge"
        elif name in MERGED_SETS:
            inner["x-kubernetes-patch-strategy"] = "merge"
        _mark_lists(items if items else inner, name)
