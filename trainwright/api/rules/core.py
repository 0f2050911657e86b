"""Validation of kinds of the core group by the API server: keys, Secret types, Service ports, claim sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.event_forms import reporting_problems
from trainwright.api.objects import Obj, annotations_of, namespace_of
from trainwright.api.rules.pod import pod_spec_problems
from trainwright.api.rules.problems import not_negative, one_of, required
from trainwright.api.rules.webhook import AdmissionRequest, WebhookRule
from trainwright.api.schema.check import as_json

MOST_BYTES = 1024 * 1024
"""Maximum bytes of all values of a ConfigMap or Secret together."""
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NOT_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', "
    "regex used for validation is '[-._a-zA-Z0-9]+')"
)
_ACCOUNT = "kubernetes.io/service-account.name"
_NEEDED = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
"""Required keys by type of Secret."""
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def _keys(case: AdmissionRequest) -> Iterator[Problem]:
    total = 0
    for part in ("data", "binaryData"):
        for key, value in (case.new.get(part) or {}).items():
            total += len(str(value))
            where = f"{part}[{key}]"
            if not _KEY.fullmatch(key):
                yield Problem(where, f'Invalid value: "{key}": {_NOT_KEY}')
            elif len(key) > 253:
                yield Problem(where, f'Invalid value: "{key}": must be no more than 253 characters')
            elif key in (".", "..") or key.startswith(".."):
                yield Problem(where, f"Invalid value: \"{key}\": must not be '{key if key in ('.', '..') else '..'}'")
            if part == "binaryData" and key in (case.new.get("data") or {}):
                yield Problem(where, f'Invalid value: "{key}": duplicate of key present in data')
    if total > MOST_BYTES:
        whole = "" if case.new["kind"] == "ConfigMap" else "data"
        yield Problem(whole, f"Too long: may not be more than {MOST_BYTES} bytes", "FieldValueTooLong")


def _fixed(case: AdmissionRequest) -> Iterator[Problem]:
    if case.old is None or not case.old.get("immutable"):
        return
    message = "Forbidden: field is immutable when `immutable` is set"
    if not case.new.get("immutable"):
        yield Problem("immutable", message, "FieldValueForbidden")
    for part in ("data", "binaryData"):
        if (case.new.get(part) or {}) != (case.old.get(part) or {}):
            yield Problem(part, message, "FieldValueForbidden")


def _secret_type(case: AdmissionRequest) -> Iterator[Problem]:
    kind, data = case.new.get("type"), case.new.get("data") or {}
    if case.old is not None and kind != case.old.get("type"):
        yield Problem("type", f'Invalid value: "{kind}": field is immutable')
    yield from (required(f"data[{key}]") for key in _NEEDED.get(str(kind), ()) if key not in data)
    if kind == "kubernetes.io/service-account-token" and not annotations_of(case.new).get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        yield required("data[username]")
        yield required("data[password]")


def _service(case: AdmissionRequest) -> Iterator[Problem]:
    spec = case.new.get("spec") or {}
    kind, ports = spec.get("type") or "ClusterIP", spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    if not ports and not headless and kind != "ExternalName":
        yield required("spec.ports")
    seen: set[str] = set()
    for index, port in enumerate(ports):
        yield from _port(port, f"spec.ports[{index}]", seen, named=len(ports) > 1)
    yield from one_of(spec.get("sessionAffinity") or "None", "spec.sessionAffinity", ("ClientIP", "None"))
    yield from one_of(kind, "spec.type", _TYPES)
    if kind == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")


def _port(port: Obj, path: str, seen: set[str], *, named: bool) -> Iterator[Problem]:
    name, target = port.get("name"), port.get("targetPort")
    if not name and named:
        yield required(f"{path}.name")
    elif name and name in seen:
        yield Problem(f"{path}.name", f"Duplicate value: {as_json(name)}", "FieldValueDuplicate")
    seen.add(str(name or ""))
    yield from _number(port.get("port"), f"{path}.port")
    yield from one_of(port.get("protocol") or "TCP", f"{path}.protocol", _PROTOCOLS)
    if isinstance(target, int):
        yield from _number(target, f"{path}.targetPort")


def _number(value: Any, where: str) -> Iterator[Problem]:
    if not isinstance(value, int) or not 1 <= value <= 65535:
        yield Problem(where, f"Invalid value: {value or 0}: must be between 1 and 65535, inclusive")


def _same_address(case: AdmissionRequest) -> Iterator[Problem]:
    if case.old is None:
        return
    old, new = ((obj.get("spec") or {}) for obj in (case.old, case.new))
    if old.get("type") == "ExternalName" or new.get("type") == "ExternalName":
        return
    if old.get("clusterIP") and new.get("clusterIP") != old["clusterIP"]:
        shown = as_json([new["clusterIP"]]) if new.get("clusterIP") else "null"
        yield Problem("spec.clusterIPs[0]", f"Invalid value: {shown}: may not change once set")


def _claim(case: AdmissionRequest) -> Iterator[Problem]:
    spec = case.new.get("spec") or {}
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    for mode in spec.get("accessModes") or []:
        yield from one_of(mode, "spec.accessModes", _MODES)
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield required("spec.resources[storage]")


def _fixed_claim(case: AdmissionRequest) -> Iterator[Problem]:
    if case.old is None:
        return
    old, new = (_unchangeable(obj.get("spec") or {}) for obj in (case.old, case.new))
    if old != new:
        why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        yield Problem("spec", f"Forbidden: {why}", "FieldValueForbidden")


def _unchangeable(spec: Obj) -> Obj:
    kept = {key: value for key, value in spec.items() if key not in ("volumeAttributesClassName", "volumeName")}
    return {**kept, "resources": {**(spec.get("resources") or {}), "requests": None}}


def _lease(case: AdmissionRequest) -> Iterator[Problem]:
    spec = case.new.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield Problem("spec.leaseDurationSeconds", f"Invalid value: {duration}: must be greater than 0")
    yield from not_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")


def _event(case: AdmissionRequest) -> Iterator[Problem]:
    about, own = (case.new.get("involvedObject") or {}).get("namespace") or "", namespace_of(case.new)
    if case.new.get("eventTime"):
        if not about and own not in ("default", "kube-system"):
            yield Problem("involvedObject.namespace", f'Invalid value: "{about}": does not match event.namespace')
        yield from reporting_problems(case.new, "reportingComponent")
    elif about != own and not (not about and own == "default"):
        yield Problem("involvedObject.namespace", f'Invalid value: "{about}": does not match event.namespace')


def _template(case: AdmissionRequest) -> Iterator[Problem]:
    yield from pod_spec_problems((case.new.get("template") or {}).get("spec") or {}, "template.spec")


CONFIG_MAP_RULES = (
    WebhookRule("data", "keys of letters, digits, `-`, `_` and `.`; at most 1 MiB in total", _keys),
    WebhookRule("immutable", "no changes once it is true", _fixed),
)
SECRET_RULES = (
    WebhookRule("type", "immutable, with the required keys of the type", _secret_type),
    *CONFIG_MAP_RULES,
)
SERVICE_RULES = (
    WebhookRule("spec.clusterIP", "immutable", _same_address),
    WebhookRule("spec", "ports with unique names and numbers, unless headless", _service),
)
CLAIM_RULES = (
    WebhookRule("spec", "an access mode and a size", _claim),
    WebhookRule("spec", "immutable, except for its size", _fixed_claim),
)
LEASE_RULES = (WebhookRule("spec", "a positive duration", _lease),)
EVENT_RULES = (WebhookRule("involvedObject.namespace", "the event's own", _event),)
POD_TEMPLATE_RULES = (WebhookRule("template.spec", "a valid pod spec", _template),)
