"""Validation by the API server of kinds with few rules: of the core group, of access, and those of workloads that nothing runs here.

They concern keys, Secret types, Service ports and claim sizes; roles and bindings (kubernetes/pkg/apis/rbac/validation); Deployments,
NetworkPolicies and PodDisruptionBudgets, which come with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import Problem
from trainwright.api.event_forms import reporting_problems
from trainwright.api.kinds import RBAC
from trainwright.api.objects import Obj, annotations_of, labels_of, namespace_of
from trainwright.api.paths import value_at
from trainwright.api.rules.pod import pod_spec_problems
from trainwright.api.rules.problems import AdmissionRequest, WebhookRule, not_negative, one_of, required
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


def _fixed_field(where: str, forbidden: str = "") -> WebhookRule:
    """A rule for a field that keeps the value which it has once; `forbidden` are the API server's words where it has its own."""

    def breaches(case: AdmissionRequest) -> Iterator[Problem]:
        old, new = (value_at(obj or {}, where) for obj in (case.old, case.new))
        if old is not None and new != old:
            message = f"Forbidden: {forbidden}" if forbidden else f"Invalid value: {as_json(new)}: field is immutable"
            yield Problem(where, message, "FieldValueForbidden" if forbidden else "FieldValueInvalid")

    return WebhookRule(where, "immutable", breaches)


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
PRIORITY_CLASS_RULES = (_fixed_field("value", "may not be changed in an update."), _fixed_field("preemptionPolicy"))
RUNTIME_CLASS_RULES = (_fixed_field("handler"),)
NODE_RULES = (_fixed_field("spec.providerID", 'node updates may not change providerID except from "" to valid'),)
LEASE_RULES = (WebhookRule("spec", "a positive duration", _lease),)
EVENT_RULES = (WebhookRule("involvedObject.namespace", "the event's own", _event),)
POD_TEMPLATE_RULES = (WebhookRule("template.spec", "a valid pod spec", _template),)


def _role(case: AdmissionRequest) -> Iterator[Problem]:
    for index, rule in enumerate(case.new.get("rules") or []):
        yield from _rule(rule, f"rules[{index}]", is_namespaced=case.new["kind"] == "Role")


def _rule(rule: Obj, path: str, *, is_namespaced: bool) -> Iterator[Problem]:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if urls:
        where = f"{path}.nonResourceURLs"
        if is_namespaced:
            yield Problem(where, f"Invalid value: {as_json(urls)}: namespaced rules cannot apply to non-resource URLs")
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield Problem(where, f"Invalid value: {as_json(urls)}: {why}")
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _role_ref(case: AdmissionRequest) -> Iterator[Problem]:
    reference = case.new.get("roleRef") or {}
    if case.old is not None and case.old.get("roleRef") != reference:
        yield Problem("roleRef", f"Invalid value: {as_json(reference)}: cannot change roleRef")
    yield from one_of(reference.get("apiGroup", ""), "roleRef.apiGroup", (RBAC,))
    is_namespaced = case.new["kind"] == "RoleBinding"
    yield from one_of(reference.get("kind", ""), "roleRef.kind", ("Role", "ClusterRole") if is_namespaced else ("ClusterRole",))
    if not reference.get("name"):
        yield required("roleRef.name")


def _subjects(case: AdmissionRequest) -> Iterator[Problem]:
    for index, subject in enumerate(case.new.get("subjects") or []):
        path = f"subjects[{index}]"
        if not subject.get("name"):
            yield required(f"{path}.name")
        if subject.get("kind") == "ServiceAccount":
            yield from one_of(subject.get("apiGroup", ""), f"{path}.apiGroup", ("",))
            if not subject.get("namespace") and case.new["kind"] == "ClusterRoleBinding":
                yield required(f"{path}.namespace")
        else:
            yield from one_of(subject.get("apiGroup", ""), f"{path}.apiGroup", (RBAC,))
            yield from one_of(subject.get("kind", ""), f"{path}.kind", ("ServiceAccount", "User", "Group"))


ROLE_RULES = (WebhookRule("rules", "verbs, and resources of groups or, in a ClusterRole, non-resource URLs", _role),)
BINDING_RULES = (
    WebhookRule("roleRef", "immutable: a role, or a ClusterRole", _role_ref),
    WebhookRule("subjects", "accounts, users and groups by name", _subjects),
)


def _deployment(case: AdmissionRequest) -> Iterator[Problem]:
    spec = case.new.get("spec") or {}
    for field in ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        yield from not_negative(spec.get(field), f"spec.{field}")
    yield from _selected(spec)
    if case.old is not None and (case.old.get("spec") or {}).get("selector") != spec.get("selector"):
        yield Problem("spec.selector", f"Invalid value: {as_json(spec.get('selector'))}: field is immutable")
    yield from one_of((spec.get("strategy") or {}).get("type"), "spec.strategy.type", ("Recreate", "RollingUpdate"))
    pod = (spec.get("template") or {}).get("spec") or {}
    yield from pod_spec_problems(pod, "spec.template.spec")
    yield from one_of(pod.get("restartPolicy"), "spec.template.spec.restartPolicy", ("Always",))


def _selected(spec: Obj) -> Iterator[Problem]:
    """Problems of the selector; its expressions are not compared with the template."""
    selector, labels = spec.get("selector"), labels_of(spec.get("template") or {})
    if selector is None:
        yield required("spec.selector")
    elif not selector:
        yield Problem("spec.selector", "Invalid value: {}: empty selector is invalid for deployment")
    elif not (selector.get("matchLabels") or {}).items() <= labels.items():
        why = "`selector` does not match template `labels`"
        yield Problem("spec.template.metadata.labels", f"Invalid value: {as_json(labels)}: {why}")


def _budget(case: AdmissionRequest) -> Iterator[Problem]:
    spec = case.new.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield Problem("spec", f"Invalid value: {as_json(spec)}: minAvailable and maxUnavailable cannot be both set")


def _network_policy(case: AdmissionRequest) -> Iterator[Problem]:
    spec = case.new.get("spec") or {}
    for index, policy_type in enumerate(spec.get("policyTypes") or []):
        yield from one_of(policy_type, f"spec.policyTypes[{index}]", ("Egress", "Ingress"))


DEPLOYMENT_RULES = (WebhookRule("spec", "a selector that its own template matches, and a valid pod spec", _deployment),)
BUDGET_RULES = (WebhookRule("spec", "minAvailable or maxUnavailable, not both", _budget),)
NETWORK_POLICY_RULES = (WebhookRule("spec.policyTypes", "Egress and Ingress", _network_policy),)


def not_run_warnings(case: AdmissionRequest) -> Iterator[str]:
    """Say that the object is stored, and that the embedded cluster has no controller for its kind."""
    kind = case.new["kind"]
    effect = "its pods are not started" if kind == "Deployment" else "it has no effect"
    yield f"{kind} {case.new['metadata'].get('name', '')}: this cluster stores it, and {effect}"
