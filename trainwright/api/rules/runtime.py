"""Validation of a runtime by Trainer's webhooks: each step with an ancestor label has one replica and its container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of, name_of, named
from trainwright.api.rules.trainjob import DEPRECATED, is_deprecated
from trainwright.api.rules.webhook import AdmissionRequest, WebhookRule
from trainwright.api.schema.serialised import serialised

_UNCHECKED_LABEL = "trainer.kubeflow.org/webhook-validation"
_JOBS = "spec.template.spec.replicatedJobs"


def cluster_runtime_warnings(case: AdmissionRequest) -> Iterator[str]:
    """On create only, and only for ClusterTrainingRuntimes."""
    if case.old is None and is_deprecated(case.new) and not _is_unchecked(case.new):
        yield DEPRECATED.format(kind="ClusterTrainingRuntime", name=name_of(case.new))


def _is_unchecked(runtime: Obj) -> bool:
    return labels_of(runtime).get(_UNCHECKED_LABEL) == "disabled"


def _steps(case: AdmissionRequest) -> Iterator[tuple[str, str, Any]]:
    """The replicated jobs with an ancestor label: path, label and job."""
    if _is_unchecked(case.new):
        return
    template = (case.new.get("spec") or {}).get("template") or {}
    for index, job in enumerate((template.get("spec") or {}).get("replicatedJobs") or []):
        step = labels_of(job["template"]).get(names.ANCESTOR_LABEL, "")
        if step in names.CONTAINER_OF_ANCESTOR:
            yield f"{_JOBS}[{index}]", step, job


def _step_problems(case: AdmissionRequest) -> Iterator[Problem]:
    for path, step, job in _steps(case):
        if job["replicas"] != 1:
            yield Problem(f"{path}.replicas", f"Invalid value: {job['replicas']}: always must be 1")
        containers = job["template"]["spec"]["template"].get("spec", {}).get("containers") or []
        if named(containers, names.CONTAINER_OF_ANCESTOR[step]) is None:
            shown = serialised(containers, containers=True)
            message = f"Invalid value: {shown}: must contain the required container for the ancestor: {step}"
            yield Problem(f"{path}.template.spec.template.spec.containers", message)


def _on_create(case: AdmissionRequest) -> Iterator[Problem]:
    return iter(()) if case.old is not None else _step_problems(case)


CLUSTER_RUNTIME_RULES = (WebhookRule(f"{_JOBS}[]", "one replica, and the container of its step", _step_problems),)
NAMESPACED_RUNTIME_RULES = (WebhookRule(f"{_JOBS}[]", "the same, on create", _on_create),)
