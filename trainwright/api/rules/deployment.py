"""Validation of Deployments, NetworkPolicies and PodDisruptionBudgets by the API server, and the warning that nothing runs them."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of
from trainwright.api.rules.pod import pod_spec_problems
from trainwright.api.rules.problems import not_negative, one_of, required
from trainwright.api.rules.webhook import AdmissionRequest, WebhookRule
from trainwright.api.schema.check import as_json


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
