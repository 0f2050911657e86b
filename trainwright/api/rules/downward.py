"""What the downward API may be asked for: fields of the pod and resources of its containers, in variables and in files.

Sources: `validateObjectFieldSelector`, `validateContainerResourceFieldSelector` and `ConvertDownwardAPIFieldLabel` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.rules.problems import one_of, required
from trainwright.api.rules.volume_files import path_problems
from trainwright.api.schema.check import as_json

_VARIABLE_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_FILE_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_KNOWN_FIELDS = {*_VARIABLE_FIELDS, *_FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
_RESOURCES = tuple(f"{group}.{name}" for group in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_KEYED = re.compile(r"(?P<field>.+)\['.*'\]", re.DOTALL)
_HAVE_KEYS = ("metadata.annotations", "metadata.labels")


def variable_problems(source: Obj, where: str) -> Iterator[Problem]:
    """Problems of a variable's `valueFrom`."""
    if (reference := source.get("fieldRef")) is not None:
        yield from _field(reference, f"{where}.fieldRef", _VARIABLE_FIELDS)
    if (reference := source.get("resourceFieldRef")) is not None:
        yield from _resource(reference, f"{where}.resourceFieldRef", is_file=False)


def file_problems(items: list[Obj], where: str) -> Iterator[Problem]:
    """Problems of the `items` of a downward API volume."""
    for index, item in enumerate(items):
        own, field, resource = f"{where}[{index}]", item.get("fieldRef"), item.get("resourceFieldRef")
        if not item.get("path"):
            yield required(f"{own}.path")
        yield from path_problems(str(item.get("path") or ""), f"{own}.path")
        if field is not None:
            yield from _field(field, f"{own}.fieldRef", _FILE_FIELDS)
            if resource is not None:
                words = 'Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously'
                yield Problem(own, words)
        elif resource is not None:
            yield from _resource(resource, f"{own}.resourceFieldRef", is_file=True)
        else:
            yield required(own, "one of fieldRef and resourceFieldRef is required")


def _field(reference: Obj, where: str, fields: tuple[str, ...]) -> Iterator[Problem]:
    path = str(reference.get("fieldPath") or "")
    keyed = _KEYED.fullmatch(path)
    if not path:
        yield required(f"{where}.fieldPath")
    elif keyed is not None and keyed["field"] not in _HAVE_KEYS:
        why = f"error converting fieldPath: field label does not support subscript: {path}"
        yield Problem(f"{where}.fieldPath", f"Invalid value: {as_json(path)}: {why}")
    elif keyed is None and path not in _KNOWN_FIELDS:
        why = f"error converting fieldPath: field label not supported: {path}"
        yield Problem(f"{where}.fieldPath", f"Invalid value: {as_json(path)}: {why}")
    elif keyed is None:
        yield from one_of(path, f"{where}.fieldPath", fields)


def _resource(reference: Obj, where: str, *, is_file: bool) -> Iterator[Problem]:
    resource = str(reference.get("resource") or "")
    if is_file and not reference.get("containerName"):
        yield required(f"{where}.containerName")
    elif not resource:
        yield required(f"{where}.resource")
    elif not resource.startswith(_HUGE_PAGES):
        yield from one_of(resource, f"{where}.resource", _RESOURCES)
