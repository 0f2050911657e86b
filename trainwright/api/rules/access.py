"""Validation of roles and bindings by the API server (kubernetes/pkg/apis/rbac/validation)."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.kinds import RBAC
from trainwright.api.objects import Obj
from trainwright.api.rules.problems import one_of, required
from trainwright.api.rules.webhook import AdmissionRequest, WebhookRule
from trainwright.api.schema.check import as_json


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
