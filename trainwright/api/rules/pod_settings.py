"""Validation of what a pod spec says besides its containers and volumes, and of what the downward API and files of volumes may name.

An entry `null` of a list is an empty one for an API server, and is refused by the rule for its required field. What passes here is
written into files of other pods and handed to the kernel: files lie below their volume, and not where the kubelet keeps its own.
Source: pkg/apis/core/validation of Kubernetes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.rules.metadata import NOT_SUBDOMAIN, is_subdomain, key_faults
from trainwright.api.rules.problems import one_of, required
from trainwright.api.schema.check import as_json

MAX_ID = 2**31 - 1
_MAX_OVERRIDE = 64
_NO_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_IDS = ("runAsUser", "runAsGroup", "fsGroup")
_NO_KEY = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
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
_LARGEST_MODE = 0o777


def pod_settings_problems(spec: Obj, path: str) -> Iterator[Problem]:
    """Yield the problems of these settings, of a pod spec with valid types."""
    yield from _host_aliases(spec.get("hostAliases") or [], f"{path}.hostAliases")
    if (name := spec.get("hostnameOverride")) is not None:
        yield from _host_name(name, f"{path}.hostnameOverride", _MAX_OVERRIDE)
    yield from _ids(spec.get("securityContext") or {}, f"{path}.securityContext")
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(group) or []):
            yield from _ids(container.get("securityContext") or {}, f"{path}.{group}[{index}].securityContext")
    for index, toleration in enumerate(spec.get("tolerations") or []):
        if not toleration.get("key") and toleration.get("operator") != "Exists":
            operator = as_json(toleration.get("operator") or "")
            yield Problem(f"{path}.tolerations[{index}].operator", f"Invalid value: {operator}: {_NO_KEY}")
    for field, key in (("schedulingGates", "name"), ("readinessGates", "conditionType")):
        for index, gate in enumerate(spec.get(field) or []):
            for fault in key_faults(str(gate.get(key) or "")):
                yield Problem(f"{path}.{field}[{index}].{key}", f"Invalid value: {as_json(gate.get(key) or '')}: {fault}")
    for index, option in enumerate((spec.get("dnsConfig") or {}).get("options") or []):
        if not option.get("name"):
            yield required(f"{path}.dnsConfig.options[{index}]", "must not be empty")
    yield from _spreading(spec.get("topologySpreadConstraints") or [], f"{path}.topologySpreadConstraints")


def _host_aliases(aliases: list[Obj], path: str) -> Iterator[Problem]:
    for index, alias in enumerate(aliases):
        address = str(alias.get("ip") or "")
        if not is_address(address):
            yield Problem(f"{path}[{index}].ip", f"Invalid value: {as_json(address)}: {_NO_IP}")
        for number, name in enumerate(alias.get("hostnames") or []):
            yield from _host_name(name, f"{path}[{index}].hostnames[{number}]")


def _host_name(name: Any, where: str, longest: int = 253) -> Iterator[Problem]:
    text = str(name or "")
    if len(text) > longest:
        yield Problem(where, f"Invalid value: {as_json(text)}: must be no more than {longest} characters")
    if not is_subdomain(text):
        yield Problem(where, f"Invalid value: {as_json(text)}: {NOT_SUBDOMAIN}")


def is_address(text: str) -> bool:
    """Whether a text is an IP address, and nothing besides: no zone, no white space."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _ids(context: Obj, path: str) -> Iterator[Problem]:
    given = [(name, context.get(name)) for name in _IDS]
    given += [(f"supplementalGroups[{index}]", group) for index, group in enumerate(context.get("supplementalGroups") or [])]
    for name, number in given:
        if number is not None and not 0 <= number <= MAX_ID:
            yield Problem(f"{path}.{name}", f"Invalid value: {number}: must be between 0 and {MAX_ID}, inclusive")


def _spreading(constraints: list[Obj], path: str) -> Iterator[Problem]:
    for index, constraint in enumerate(constraints):
        where, skew = f"{path}[{index}]", constraint.get("maxSkew") or 0
        if skew <= 0:
            yield Problem(f"{where}.maxSkew", f"Invalid value: {skew}: must be greater than zero")
        if not constraint.get("topologyKey"):
            yield required(f"{where}.topologyKey", "can not be empty")
        if constraint.get("whenUnsatisfiable") is None:
            yield from one_of("", f"{where}.whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))


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


def key_problems(source: Obj, where: str) -> Iterator[Problem]:
    """Problems of the keys that a `configMap` or `secret` source names, and of the modes of their files."""
    yield from mode_problems(source.get("defaultMode"), f"{where}.defaultMode")
    for index, item in enumerate(source.get("items") or []):
        own = f"{where}.items[{index}]"
        if not item.get("key"):
            yield required(f"{own}.key")
        if not item.get("path"):
            yield required(f"{own}.path")
        yield from path_problems(str(item.get("path") or ""), f"{own}.path")
        yield from mode_problems(item.get("mode"), f"{own}.mode")


def path_problems(path: str, where: str) -> Iterator[Problem]:
    """Problems of a file's path in its volume."""
    if path.startswith("/"):
        yield Problem(where, f"Invalid value: {as_json(path)}: must be a relative path")
    if ".." in path.split("/"):
        yield Problem(where, f"Invalid value: {as_json(path)}: must not contain '..'")
    if path.startswith("..") and not path.startswith("../"):
        yield Problem(where, f"Invalid value: {as_json(path)}: must not start with '..'")


def mode_problems(mode: int | None, where: str) -> Iterator[Problem]:
    """Problems of a file's mode."""
    if mode is not None and not 0 <= mode <= _LARGEST_MODE:
        yield Problem(where, f"Invalid value: {mode}: must be a number between 0 and 0777 (octal), both inclusive")
