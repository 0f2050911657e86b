"""Minimal OpenAPI documents: support for server-side field validation, and the schema of each kind.

kubectl looks for the `fieldValidation` parameter in the path of a kind; if present, it leaves validation to the server. Schemas are
for `kubectl explain`, and for list merging in `kubectl apply` and `diff`.
"""

from __future__ import annotations

import hashlib
from functools import cache

import orjson

from trainwright.api.admission.crds import openapi_schema
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.schema.types import ListOf, Schema, Struct
from trainwright.controlplane.apiserver.discovery.documents import KUBERNETES_VERSION
from trainwright.controlplane.apiserver.managed_fields.managed_writes import schema_of
from trainwright.controlplane.apiserver.resources.registry import GROUP_VERSIONS, STRATEGIES_BY_PATH, strategy_of

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "pretty")
]
_FORCE = {"name": "force", "in": "query", "schema": {"type": "boolean", "uniqueItems": True}}
_STRATEGIC = "application/strategic-merge-patch+json"
_PROTO = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_BODIES = ("application/json", "application/yaml")
_PATCHES = ("application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json")
_OPEN_SCHEMA = "x-kubernetes-preserve-unknown-fields"
_DESCRIPTIONS = {
    "apiVersion": "The version of the schema of this object.",
    "kind": "The kind of this object.",
    "metadata": "Name, labels, annotations, owners.",
    "spec": "The desired state.",
    "status": "The observed state.",
}


@cache
def index() -> bytes:
    """`/openapi/v3`: the URL of the document of each group version."""
    paths = {}
    for group, version in GROUP_VERSIONS:
        path = _path(group, version)
        digest = hashlib.sha256(document(group, version) or b"").hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return orjson.dumps({"paths": paths})


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def openapi_v2(accept: str) -> tuple[bytes, str]:
    """`/openapi/v2` and its media type: a document without schemas, so that older clients leave validation to the server."""
    title, version = b"Kubernetes", f"v{KUBERNETES_VERSION}".encode()
    if "proto-openapi" in accept:
        info = _text_field(1, title) + _text_field(2, version)
        return _text_field(1, b"2.0") + _text_field(2, info) + _text_field(8, b"") + _text_field(9, b""), _PROTO
    empty = {"swagger": "2.0", "info": {"title": title.decode(), "version": version.decode()}, "paths": {}, "definitions": {}}
    return orjson.dumps(empty), "application/json"


def _text_field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field of fewer than 128 bytes."""
    return bytes((number << 3 | 2, len(content))) + content


@cache
def document(group: str, version: str) -> bytes | None:
    """The OpenAPI 3 document of a group version; None if it is not served."""
    chosen = [strategy.kind for (g, v, _), strategy in STRATEGIES_BY_PATH.items() if (g, v) == (group, version)]
    if not chosen:
        return None
    paths: Obj = {}
    for kind in chosen:
        collection = kind.path("{namespace}" if kind.namespaced else None)
        one = kind.path("{namespace}" if kind.namespaced else None, "{name}")
        paths[collection] = {"get": _operation(kind, "list"), "post": _operation(kind, "post", body=True)}
        paths[one] = {
            "get": _operation(kind, "get"),
            "put": _operation(kind, "put", body=True),
            "patch": _operation(kind, "patch", body=True),
            "delete": _operation(kind, "delete"),
        }
    return orjson.dumps(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": f"v{KUBERNETES_VERSION}"},
            "paths": paths,
            "components": {"schemas": {_schema_name(kind): schema_for(kind) for kind in chosen}},
        }
    )


def _operation(kind: Kind, action: str, *, body: bool = False) -> Obj:
    reference = {"schema": {"$ref": f"#/components/schemas/{_schema_name(kind)}"}}
    operation: Obj = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "responses": {"200": {"description": "OK", "content": {"application/json": reference}}},
    }
    if body:
        patches = _PATCHES if strategy_of(kind).custom else (*_PATCHES, _STRATEGIC)
        media_types = patches if action == "patch" else _BODIES
        operation["parameters"] = [*_PARAMETERS, *([_FORCE] if action == "patch" else [])]
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(media_types, reference)}
    return operation


def _schema_name(kind: Kind) -> str:
    return (
        ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
        if kind.group
        else f"io.k8s.api.core.{kind.version}.{kind.kind}"
    )


def schema_for(kind: Kind) -> Obj:
    """The schema of a kind without references."""
    schema = schema_of(kind)
    openapi = openapi_schema(schema)
    if schema.open:
        openapi["properties"] |= {part: {"type": "object", _OPEN_SCHEMA: True} for part in ("spec", "status")}
        openapi[_OPEN_SCHEMA] = True
    if not strategy_of(kind).custom:
        _mark_merging(openapi, schema)
    for name, text in _DESCRIPTIONS.items():
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
