"""Validation of what a pod spec says besides its containers and volumes: host names, user ids, gates, tolerations, spreading.

An entry `null` of a list is an empty one for an API server, and is refused by the rule for its required field. What passes here is
written into files of other pods and handed to the kernel. Source: pkg/apis/core/validation of Kubernetes.
"""

from __future__ import annotations

import ipaddress
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
