"""Validation of a pod spec by the API server, in Pods and in templates of Jobs."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity
from trainwright.api.rules.metadata import container_name_fault
from trainwright.api.rules.pod_settings import (
    file_problems,
    key_problems,
    path_problems,
    pod_settings_problems,
    variable_problems,
)
from trainwright.api.rules.problems import AdmissionRequest, WebhookRule, not_negative, one_of, required
from trainwright.api.rules.token_life import token_life_problems
from trainwright.api.schema.check import as_json

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_VOLUME_KINDS = ("emptyDir", "hostPath", "secret", "nfs", "persistentVolumeClaim", "downwardAPI", "configMap", "projected", "csi")
"""If a volume has two sources, the first in this order is used."""
_MAY_CHANGE = (
    "activeDeadlineSeconds",
    "tolerations",
    "schedulingGates",
    "nodeName",
    "nodeSelector",
    "affinity",
    "containers",
    "initContainers",
)
"""Fields of a pod spec that are compared separately, or that a scheduler may still set."""
_CHANGEABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
_LONGEST_DEADLINE = 2**31 - 1
_NO_ENV_SOURCE = "must specify one of: `configMapRef` or `secretRef`"
_STANDARD = ("cpu", "memory", "ephemeral-storage")


def pod_spec_problems(spec: Obj, path: str) -> Iterator[Problem]:
    """Problems of a pod spec with valid types."""
    yield from _volumes(spec.get("volumes") or [], f"{path}.volumes")
    volumes = {volume.get("name") for volume in spec.get("volumes") or [] if len(volume) <= 2}
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or []):
            yield from _container(container, f"{path}.{group}[{index}]", volumes, seen)
    yield from not_negative(spec.get("terminationGracePeriodSeconds"), f"{path}.terminationGracePeriodSeconds")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline < 2**31:
        where = f"{path}.activeDeadlineSeconds"
        yield Problem(where, f"Invalid value: {deadline}: must be between 1 and 2147483647, inclusive")
    for field in ("hostname", "subdomain"):
        if (name := spec.get(field)) and (fault := container_name_fault(name)):
            yield Problem(f"{path}.{field}", f"Invalid value: {as_json(name)}: {fault}")
    for index, toleration in enumerate(spec.get("tolerations") or []):
        if toleration.get("operator"):
            yield from one_of(toleration["operator"], f"{path}.tolerations[{index}].operator", ("Equal", "Exists"))
    yield from pod_settings_problems(spec, path)


def pod_name_warnings(case: AdmissionRequest) -> Iterator[str]:
    """A Pod's name becomes its hostname, which should be short and without dots."""
    if case.old is not None:
        return
    name = str((case.new.get("metadata") or {}).get("name") or "")
    faults = ["must not contain dots"] if "." in name else []
    faults += ["must be no more than 63 characters"] if len(name) > 63 else []
    if faults and not (case.new.get("spec") or {}).get("hostname"):
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(faults)}]"
        )


def _asked_in_order(kind: str) -> tuple[int, str]:
    return (_VOLUME_KINDS.index(kind) if kind in _VOLUME_KINDS else len(_VOLUME_KINDS)), kind


def _volumes(volumes: list[Obj], path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name")
        if not name:
            yield required(f"{where}.name")
        elif name in seen:
            yield Problem(f"{where}.name", f"Duplicate value: {as_json(name)}", "FieldValueDuplicate")
        elif fault := container_name_fault(name):
            yield Problem(f"{where}.name", f"Invalid value: {as_json(name)}: {fault}")
        seen.add(name or "")
        for kind in sorted(volume.keys() - {"name"}, key=_asked_in_order)[1:]:
            yield Problem(f"{where}.{kind}", "Forbidden: may not specify more than 1 volume type", "FieldValueForbidden")
        if "downwardAPI" in volume:
            yield from file_problems((volume["downwardAPI"] or {}).get("items") or [], f"{where}.downwardAPI.items")
        yield from _keyed(volume, where)
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or []):
            own = f"{where}.projected.sources[{number}]"
            yield from _keyed(source, own)
            if "downwardAPI" in source:
                yield from file_problems((source["downwardAPI"] or {}).get("items") or [], f"{own}.downwardAPI.items")
            if token := source.get("serviceAccountToken"):
                yield from _token_problems(token, f"{own}.serviceAccountToken")


def _token_problems(token: Obj, where: str) -> Iterator[Problem]:
    if (seconds := token.get("expirationSeconds")) is not None:
        yield from token_life_problems(seconds, f"{where}.expirationSeconds")
    if not token.get("path"):
        yield required(f"{where}.path")
    yield from path_problems(str(token.get("path") or ""), f"{where}.path")


def _keyed(source: Obj, where: str) -> Iterator[Problem]:
    for kind in ("secret", "configMap"):
        yield from key_problems(source.get(kind) or {}, f"{where}.{kind}")


def _container(container: Obj, path: str, volumes: set[Any], seen: set[str]) -> Iterator[Problem]:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif name in seen:
        yield Problem(f"{path}.name", f"Duplicate value: {as_json(name)}", "FieldValueDuplicate")
    elif fault := container_name_fault(name):
        yield Problem(f"{path}.name", f"Invalid value: {as_json(name)}: {fault}")
    seen.add(name or "")
    if not container.get("image"):
        yield required(f"{path}.image")
    yield from _ports(container.get("ports") or [], f"{path}.ports")
    yield from _variables(container, path)
    yield from _mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    yield from resource_problems(container.get("resources") or {}, f"{path}.resources")


def _ports(ports: list[Obj], path: str) -> Iterator[Problem]:
    for index, port in enumerate(ports):
        for name in ("containerPort", "hostPort"):
            number = port.get(name)
            if name == "containerPort" and not number:
                yield required(f"{path}[{index}].{name}")
            elif number is not None and not 1 <= number <= 65535:
                yield Problem(f"{path}[{index}].{name}", f"Invalid value: {number}: must be between 1 and 65535, inclusive")
        yield from one_of(port.get("protocol", "TCP"), f"{path}[{index}].protocol", ("SCTP", "TCP", "UDP"))


def _variables(container: Obj, path: str) -> Iterator[Problem]:
    for index, variable in enumerate(container.get("env") or []):
        where, source = f"{path}.env[{index}]", variable.get("valueFrom")
        if not variable.get("name"):
            yield required(f"{where}.name")
        if source is None:
            continue
        if variable.get("value"):
            yield Problem(f"{where}.valueFrom", 'Invalid value: "": may not be specified when `value` is not empty')
        elif not source:
            listed = ", ".join(f"`{name}`" for name in _SOURCES[:-1])
            yield Problem(f"{where}.valueFrom", f'Invalid value: "": must specify one of: {listed} or `{_SOURCES[-1]}`')
        elif len(source) > 1:
            yield Problem(f"{where}.valueFrom", 'Invalid value: "": may not have more than one field specified at a time')
        else:
            yield from variable_problems(source, f"{where}.valueFrom")
    for index, entry in enumerate(container.get("envFrom") or []):
        if len(entry.keys() & {"configMapRef", "secretRef"}) != 1:
            why = "may not have more than one field specified at a time" if len(entry) > 1 else _NO_ENV_SOURCE
            yield Problem(f"{path}.envFrom[{index}]", f'Invalid value: "": {why}')
        for kind in ("configMapRef", "secretRef"):
            if kind in entry and not entry[kind].get("name"):
                yield required(f"{path}.envFrom[{index}].{kind}.name")


def _mounts(mounts: list[Obj], path: str, volumes: set[Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where, place = f"{path}[{index}]", mount.get("mountPath")
        if not mount.get("name"):
            yield required(f"{where}.name")
        elif mount["name"] not in volumes:
            yield Problem(f"{where}.name", f"Not found: {as_json(mount['name'])}", "FieldValueNotFound")
        if not place:
            yield required(f"{where}.mountPath")
        elif place in seen:
            yield Problem(f"{where}.mountPath", f"Invalid value: {as_json(place)}: must be unique")
        seen.add(place or "")
        for field in ("subPath", "subPathExpr"):
            yield from _sub_path(str(mount.get(field) or ""), f"{path}.{field}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield Problem(
                f"{path}.subPathExpr",
                f"Invalid value: {as_json(mount['subPathExpr'])}: subPathExpr and subPath are mutually exclusive",
            )


def _sub_path(sub_path: str, where: str) -> Iterator[Problem]:
    """A path that stays below its volume. The API server names the list of mounts, without an index."""
    if sub_path.startswith("/"):
        yield Problem(where, f"Invalid value: {as_json(sub_path)}: must be a relative path")
    if ".." in sub_path.split("/"):
        yield Problem(where, f"Invalid value: {as_json(sub_path)}: must not contain '..'")


def resource_problems(resources: Obj, path: str) -> Iterator[Problem]:
    """Invalid or negative quantities, and requests above their limit."""
    amounts: dict[str, dict[str, Quantity]] = {"limits": {}, "requests": {}}
    for group, read in amounts.items():
        for name, text in (resources.get(group) or {}).items():
            where = f"{path}.{group}[{name}]"
            yield from _resource_name(name, where)
            try:
                amount = parse_quantity(text)
            except (ValueError, ArithmeticError):
                yield Problem(where, f"Invalid value: {as_json(text)}: must be a quantity such as 500m, 2 or 1Gi")
                continue
            read[name] = amount
            if amount.value < 0:
                yield Problem(where, f'Invalid value: "{amount}": must be greater than or equal to 0')
            elif "/" in name and amount.value != amount.ceiling():
                yield Problem(where, f'Invalid value: "{amount}": must be an integer')
    for name, amount in amounts["requests"].items():
        limit = amounts["limits"].get(name)
        if limit is not None and amount.value > limit.value:
            message = f'Invalid value: "{amount}": must be less than or equal to {name} limit of {limit}'
            yield Problem(f"{path}.requests", message)
        elif limit is None and "/" in name:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")


def _resource_name(name: str, where: str) -> Iterator[Problem]:
    if "/" in name or name in _STANDARD or name.startswith("hugepages-"):
        return
    yield Problem(where, f"Invalid value: {as_json(name)}: must be a standard resource type or fully qualified")
    yield Problem(where, f"Invalid value: {as_json(name)}: must be a standard resource for containers")


def _pod(case: AdmissionRequest) -> Iterator[Problem]:
    if case.old is not None:
        return  # the mutable fields of a running pod were validated on create
    spec = case.new.get("spec") or {}
    yield from pod_spec_problems(spec, "spec")
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or []):
            image = str(container.get("image") or "")
            if image != image.strip():
                why = "must not have leading or trailing whitespace"
                yield Problem(f"spec.{group}[{index}].image", f"Invalid value: {as_json(image)}: {why}")
    yield from one_of(spec.get("restartPolicy"), "spec.restartPolicy", ("Always", "OnFailure", "Never"))


def _same_pod(case: AdmissionRequest) -> Iterator[Problem]:
    """A Pod's spec is immutable, except for images, deadline and added tolerations."""
    if case.old is None:
        return
    old, new = case.old.get("spec") or {}, case.new.get("spec") or {}
    for group in ("initContainers", "containers"):
        if len(old.get(group) or []) != len(new.get(group) or []):
            why = "Forbidden: pod updates may not add or remove containers"
            yield Problem(f"spec.{group}", why, "FieldValueForbidden")
            return
    if told := _deadline_fault(old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")):
        yield Problem("spec.activeDeadlineSeconds", told)
        return
    before, after = _unchangeable(old), _unchangeable(new)
    if before != after or not _kept(old, new):
        why = f"Forbidden: pod updates may not change fields other than {_CHANGEABLE}\n{_difference(before, after)}"
        yield Problem("spec", why, "FieldValueForbidden")


def _deadline_fault(old: Any, new: Any) -> str:
    """A deadline may be set and shortened, but not extended or removed."""
    if new is None:
        return "" if old is None else "Invalid value: null: must not update from a positive integer to nil value"
    if not 0 <= new <= _LONGEST_DEADLINE:
        return f"Invalid value: {new}: must be between 0 and {_LONGEST_DEADLINE}, inclusive"
    return f"Invalid value: {new}: must be less than or equal to previous value" if old is not None and old < new else ""


def _difference(old: Obj, new: Obj) -> str:
    before, after = (json.dumps(spec, indent=1, sort_keys=True).splitlines() for spec in (old, new))
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])


def _unchangeable(spec: Obj) -> Obj:
    kept = {key: value for key, value in spec.items() if key not in _MAY_CHANGE}
    for group in ("initContainers", "containers"):
        kept[group] = [{**container, "image": ""} for container in spec.get(group) or []]
    return kept


def _kept(old: Obj, new: Obj) -> bool:
    """Whether all earlier tolerations are kept."""
    return all(toleration in (new.get("tolerations") or []) for toleration in old.get("tolerations") or [])


POD_RULES = (
    WebhookRule(
        "spec",
        "a valid pod spec with unique container names; `hostname` and `subdomain` are labels, images have no spaces around them; a "
        "`subPath` and the files of a volume stay below it, and `subPath` excludes `subPathExpr`",
        _pod,
    ),
    WebhookRule("spec", "immutable, except for images, deadline and added tolerations", _same_pod),
)
