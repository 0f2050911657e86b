"""Writes what `kubectl explain` says of fields: first sentences of the CustomResourceDefinitions of Kubeflow Trainer and JobSet.

Usage: python tests/recorders/field_descriptions.py SHARED/upstream
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.schema.descriptions import FILE
from trainwright.api.schema.types import ListOf, MapOf, Schema, Struct

ENOUGH, MOST = 40, 400
"""Characters of a text that needs no further sentence, and of any text."""
ALIKE = 25
"""Texts that begin with as many equal characters are of the same field; others, of a type that several fields share, are left out."""
OF_SHARED_TYPES = {
    "KeySelector": {
        "key": "The key in the Secret or ConfigMap.",
        "optional": "Whether the Secret or ConfigMap, or the key in it, may be missing.",
    },
    "items": {
        "mode": "Mode bits of the file, between 0000 and 0777. Default: those of the volume.",
        "path": "Relative path of the file in the volume; it has no '..'.",
    },
    "matchExpressions": {
        "key": "The label key that the selector applies to.",
        "operator": "How the label's value relates to the values: In, NotIn, Exists, DoesNotExist; for nodes also Gt and Lt.",
        "values": "The values, for In and NotIn; none for Exists and DoesNotExist.",
    },
    "ObjectMeta": {
        "annotations": "Values that tools keep with the object, not for selecting it.",
        "finalizers": "What has to be done before the object is deleted.",
        "labels": "Keys and values by which objects are selected.",
        "name": "Name, unique in the namespace.",
        "namespace": "The namespace of the object.",
    },
    "PodSchedulingGate": {"name": "The name."},
}


def descriptions(upstream: Path) -> dict[str, dict[str, str]]:
    """Return the text of each field by the name of its type, or of the field that it is part of."""
    texts: dict[tuple[str, str], list[str]] = {}
    for kind, version, schema in definitions(upstream):
        for spec in ADMISSION_SPECS.values():
            if spec.custom and (spec.kind.kind, spec.kind.version) == (kind, version):
                for owner, field, text in described(spec.schema, schema, kind):
                    texts.setdefault((owner, field), []).append(text)
    found: dict[str, dict[str, str]] = {}
    for (owner, field), of_field in sorted(texts.items()):
        if len({text.casefold()[:ALIKE] for text in of_field}) == 1:
            found.setdefault(owner, {})[field] = of_field[0]
    return {owner: {**found.get(owner, {}), **OF_SHARED_TYPES.get(owner, {})} for owner in sorted({*found, *OF_SHARED_TYPES})}


def definitions(upstream: Path) -> Iterator[tuple[str, str, Any]]:
    for file in sorted([*upstream.glob("trainer/crds/*.yaml"), *upstream.glob("jobset/crds/*.yaml")]):
        for document in yaml.load_all(file.read_text("utf-8"), yaml.CSafeLoader):
            if document and document["kind"] == "CustomResourceDefinition":
                for version in document["spec"]["versions"]:
                    yield document["spec"]["names"]["kind"], version["name"], version["schema"]["openAPIV3Schema"]


def described(schema: Schema, upstream: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the type or field, the field in it, and the text of every field that upstream describes."""
    if isinstance(schema, ListOf):
        yield from described(schema.item, upstream.get("items") or {}, name)
    elif isinstance(schema, MapOf):
        yield from described(schema.value, upstream.get("additionalProperties") or {}, name)
    elif isinstance(schema, Struct):
        for field, inner in schema.fields.items():
            of_field = (upstream.get("properties") or {}).get(field) or {}
            if text := first_sentences(of_field.get("description") or ""):
                yield schema.type_name or name, field, text
            yield from described(inner, of_field, field)


def first_sentences(text: str) -> str:
    kept = ""
    for sentence in re.split(r"(?<=[.!])\s+(?=[A-Z\"])", " ".join(text.split()).partition("More info")[0].strip()):
        kept = f"{kept} {sentence}".strip()
        if len(kept) >= ENOUGH:
            break
    return kept[:MOST]


if __name__ == "__main__":
    FILE.write_text(json.dumps(descriptions(Path(sys.argv[1])), indent=1, ensure_ascii=False) + "\n", "utf-8")
