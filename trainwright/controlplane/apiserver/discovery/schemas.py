"""Converts the schemas of kinds to OpenAPI, for `kubectl explain` and for list merging in `kubectl apply` and `diff`."""

from __future__ import annotations

from trainwright.api.admission.crds import openapi_schema
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.schema.types import ListOf, Schema, Struct
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
        _mark_merging(openapi, schema)
    for name, text in _TOLD.items():
        if name in openapi.get("properties", {}):
            openapi["properties"][name].setdefault("description", text)
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {**openapi, "description": f"{kind.kind} of {kind.api_version}.", "x-kubernetes-group-version-kind": [gvk]}


def _mark_merging(openapi: Obj, schema: Schema) -> None:
    """Annotate a built-in kind, in place, with what a strategic merge patch does with its lists."""
    if isinstance(schema, ListOf):
        openapi, schema = openapi["items"], schema.item
    if not isinstance(schema, Struct):
        return
    for name, inner in schema.fields.items():
        marked = openapi["properties"][name]
        strategy = ["merge"] if isinstance(inner, ListOf) and inner.merge_key is not None else []
        strategy += ["retainKeys"] if inner.retain_keys else []
        if strategy:
            marked["x-kubernetes-patch-strategy"] = ",".join(strategy)
        if isinstance(inner, ListOf) and inner.merge_key:
            marked["x-kubernetes-patch-merge-key"] = inner.merge_key
        _mark_merging(marked, inner)
