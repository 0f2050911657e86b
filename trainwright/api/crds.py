"""CustomResourceDefinitions made from the same table that admission judges by, for clusters that have none."""

from __future__ import annotations

from typing import Any

from trainwright.api.governed import GOVERNED, Governed
from trainwright.api.objects import Obj
from trainwright.api.shape_check import QUANTITY_PATTERN
from trainwright.api.shapes import (
    Anything,
    Flag,
    IntOrText,
    Mapping,
    Quantity,
    Record,
    Sequence,
    Shape,
    Text,
    Whole,
)

_AGE = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
_COLUMNS: dict[str, list[Obj]] = {
    "TrainJob": [{"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"}, _AGE],
    "JobSet": [
        {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState"},
        {"name": "Restarts", "type": "string", "jsonPath": ".status.restarts"},
        {"name": "Completed", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Completed")].status'},
        {"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend"},
        _AGE,
    ],
}


def custom_resource_definitions() -> list[Obj]:
    """One CustomResourceDefinition for each custom kind that admission governs."""
    return [_definition(governed) for governed in GOVERNED.values() if governed.custom]


def _definition(governed: Governed) -> Obj:
    kind = governed.kind
    version: Obj = {"name": kind.version, "served": True, "storage": True}
    if columns := _COLUMNS.get(kind.kind):
        version["additionalPrinterColumns"] = columns
    version["schema"] = {"openAPIV3Schema": {"description": f"{kind.kind} of {kind.api_version}.", **schema_of(governed.shape)}}
    if kind.status:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "names": {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": kind.singular},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def schema_of(shape: Shape) -> Obj:
    """A shape as a structural OpenAPI schema."""
    schema = _schema(shape)
    if shape.default is not None:
        schema["default"] = shape.default
    if shape.rules:
        schema["x-kubernetes-validations"] = [{"rule": rule.cel, "message": rule.message} for rule in shape.rules]
    return schema


def _schema(shape: Shape) -> Obj:
    match shape:
        case Text():
            return _text(shape)
        case Whole():
            width = f"int{shape.bits}" if shape.bits else None
            return _given(type="integer", format=width, minimum=shape.at_least, maximum=shape.at_most)
        case Flag():
            return {"type": "boolean"}
        case Quantity():
            return {**_int_or_string(), "pattern": QUANTITY_PATTERN}
        case IntOrText():
            return _int_or_string()
        case Sequence():
            return _list(shape)
        case Mapping():
            return {"type": "object", "additionalProperties": schema_of(shape.value)}
        case Record():
            return _object(shape)
        case Anything():
            return {"type": "object"}
    raise TypeError(f"no schema for {type(shape).__name__}")


def _given(**facts: Any) -> Obj:
    return {name: value for name, value in facts.items() if value not in (None, 0, [], ()) or (name == "minimum" and value == 0)}


def _int_or_string() -> Obj:
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def _text(shape: Text) -> Obj:
    return _given(
        type="string",
        enum=list(shape.one_of),
        format="date-time" if shape.moment else None,
        minLength=shape.at_least,
        maxLength=shape.at_most,
        pattern=shape.pattern,
    )


def _list(shape: Sequence) -> Obj:
    schema = _given(type="array", items=schema_of(shape.item), minItems=shape.at_least, maxItems=shape.at_most)
    if shape.keys:
        return {**schema, "x-kubernetes-list-map-keys": list(shape.keys), "x-kubernetes-list-type": "map"}
    return {**schema, "x-kubernetes-list-type": "set" if shape.distinct else "atomic"}


def _object(shape: Record) -> Obj:
    schema = _given(type="object", required=sorted(shape.required), minProperties=shape.at_least_fields)
    if shape.fields:
        schema["properties"] = {name: schema_of(inner) for name, inner in sorted(shape.fields.items())}
    return schema
