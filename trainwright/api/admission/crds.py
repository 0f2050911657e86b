"""CustomResourceDefinitions generated from the table that admission uses, for clusters that lack them."""

from __future__ import annotations

from typing import Any

from trainwright.api.admission.specs import ADMISSION_SPECS, AdmissionSpec
from trainwright.api.objects import Obj
from trainwright.api.schema.check import QUANTITY_PATTERN
from trainwright.api.schema.published import description_of
from trainwright.api.schema.types import (
    AnyValue,
    Boolean,
    Integer,
    IntOrString,
    ListOf,
    MapOf,
    Quantity,
    Schema,
    String,
    Struct,
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
    """One CustomResourceDefinition for each custom kind with an admission spec."""
    return [_definition(admission_spec) for admission_spec in ADMISSION_SPECS.values() if admission_spec.custom]


def _definition(admission_spec: AdmissionSpec) -> Obj:
    kind = admission_spec.kind
    version: Obj = {"name": kind.version, "served": True, "storage": True}
    if columns := _COLUMNS.get(kind.kind):
        version["additionalPrinterColumns"] = columns
    version["schema"] = {
        "openAPIV3Schema": {
            "description": f"{kind.kind} of {kind.api_version}.",
            **openapi_schema(admission_spec.schema),
        }
    }
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


def openapi_schema(schema: Schema) -> Obj:
    """A schema as a structural OpenAPI schema."""
    openapi = _schema(schema)
    if schema.default is not None:
        openapi["default"] = schema.default
    if schema.rules:
        openapi["x-kubernetes-validations"] = [{"rule": rule.cel, "message": rule.message} for rule in schema.rules]
    return openapi


def _schema(schema: Schema) -> Obj:
    match schema:
        case String():
            return _text(schema)
        case Integer():
            width = f"int{schema.bits}" if schema.bits else None
            return _given(type="integer", format=width, minimum=schema.at_least, maximum=schema.at_most)
        case Boolean():
            return {"type": "boolean"}
        case Quantity():
            return {**_int_or_string(), "pattern": QUANTITY_PATTERN}
        case IntOrString():
            return _int_or_string()
        case ListOf():
            return _list(schema)
        case MapOf():
            return {"type": "object", "additionalProperties": openapi_schema(schema.value), **_whole(schema)}
        case Struct():
            return _object(schema)
        case AnyValue():
            return {"type": "object"}
    raise TypeError(f"no schema for {type(schema).__name__}")


def _given(**facts: Any) -> Obj:
    return {name: value for name, value in facts.items() if value not in (None, 0, [], ()) or (name == "minimum" and value == 0)}


def _int_or_string() -> Obj:
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def _text(schema: String) -> Obj:
    return _given(
        type="string",
        enum=list(schema.one_of),
        format="date-time" if schema.moment else None,
        minLength=schema.at_least,
        maxLength=schema.at_most,
        pattern=schema.pattern,
    )


def _list(schema: ListOf) -> Obj:
    openapi = _given(type="array", items=openapi_schema(schema.item), minItems=schema.at_least, maxItems=schema.at_most)
    if schema.keys:
        return {**openapi, "x-kubernetes-list-map-keys": list(schema.keys), "x-kubernetes-list-type": "map"}
    return {**openapi, "x-kubernetes-list-type": "set" if schema.distinct else "atomic"}


def _whole(schema: MapOf | Struct) -> Obj:
    return {"x-kubernetes-map-type": "atomic"} if schema.atomic else {}


def _object(schema: Struct) -> Obj:
    openapi = _given(type="object", required=sorted(schema.required), minProperties=schema.at_least_fields)
    if schema.fields:
        openapi["properties"] = {field: openapi_schema(inner) for field, inner in sorted(schema.fields.items())}
    openapi |= _whole(schema)
    for field, inner in openapi.get("properties", {}).items():
        if text := description_of(schema.name, field):
            inner["description"] = text
    return openapi
