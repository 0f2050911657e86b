"""Admission: what an API server does to one object before it is stored - defaults, shape, rules - with every problem in one error.

Rules that need the patched template of a TrainJob's runtime live beside the policy that they belong to, in `materialize`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from trainwright.api import jobset_schema, trainer_schema, workload_schema
from trainwright.api.defaults import job_defaults, jobset_defaults, pod_defaults
from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.objects import Obj, copy_of, name_of
from trainwright.api.rules import job_rules, jobset_rules, runtime_rules, trainjob_rules
from trainwright.api.schema import Record, changes, problems, with_defaults

Lookup = Callable[[str, str, str], Obj | None]
"""`(kind, namespace, name)` to an object, or None."""


@dataclass(frozen=True)
class AdmissionContext:
    """What a rule may ask: the time (RFC 3339), other objects, and how strictly unknown fields are taken."""

    now: str = "1970-01-01T00:00:00Z"
    lookup: Lookup | None = None
    strictness: Literal["Strict", "Warn", "Ignore"] = "Strict"


@dataclass(frozen=True)
class Admitted:
    """The object with its defaults, and what the author should be told."""

    object: Obj
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Rules:
    shape: Record
    defaults: Callable[[Obj], None]
    check: Callable[[Obj, Obj | None], Iterator[Problem]]


def _no_defaults(_obj: Obj) -> None:
    """Kinds whose defaults all stand in their shape."""


_KINDS = {
    "TrainJob": _Rules(trainer_schema.TRAINJOB, _no_defaults, trainjob_rules),
    "TrainingRuntime": _Rules(trainer_schema.RUNTIME, _no_defaults, runtime_rules),
    "ClusterTrainingRuntime": _Rules(trainer_schema.RUNTIME, _no_defaults, runtime_rules),
    "JobSet": _Rules(jobset_schema.JOBSET, jobset_defaults, jobset_rules),
    "Job": _Rules(workload_schema.JOB, job_defaults, job_rules),
    "Pod": _Rules(workload_schema.POD, pod_defaults, lambda _new, _old: iter(())),
}
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_GROUP = {
    "TrainJob": "trainer.kubeflow.org",
    "TrainingRuntime": "trainer.kubeflow.org",
    "ClusterTrainingRuntime": "trainer.kubeflow.org",
}
_GROUP |= {"JobSet": "jobset.x-k8s.io", "Job": "batch"}
_DEFAULT_CONTEXT = AdmissionContext()


def admit(obj: Obj, old: Obj | None = None, *, context: AdmissionContext = _DEFAULT_CONTEXT) -> Admitted:
    """One object as the API server would store it.

    `old` is the stored version on an update. Kinds that we have no rules for pass with their metadata checked.
    Raises BadRequest for something that is no object of a kind, Invalid with all problems otherwise.
    """
    kind = _kind_of(obj)
    found = list(_metadata_problems(obj))
    rules = _KINDS.get(kind)
    warnings: list[str] = []
    if rules is None:
        _raise(kind, obj, found)
        return Admitted(obj)
    admitted = with_defaults(rules.shape, copy_of(obj))
    rules.defaults(admitted)
    for problem in problems(rules.shape, admitted):
        if problem.reason != "FieldUnknown" or context.strictness == "Strict":
            found.append(problem)
        elif context.strictness == "Warn":
            warnings.append(problem.message)
    if not found:  # rules may rely on the shape
        if old is not None:
            found.extend(changes(rules.shape, old, admitted))
        found.extend(rules.check(admitted, old))
    _raise(kind, obj, found)
    return Admitted(admitted, warnings)


def _kind_of(obj: Any) -> str:
    if not isinstance(obj, dict):
        raise BadRequest(f"expected an object, got {type(obj).__name__}")
    kind = obj.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadRequest("kind: Required value: an object must say its kind")
    if not isinstance(obj.get("metadata", {}), dict):
        raise BadRequest("metadata: must be an object")
    return kind


def _metadata_problems(obj: Obj) -> Iterator[Problem]:
    metadata = obj.get("metadata") or {}
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        yield Problem("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")
    elif name and (not isinstance(name, str) or len(name) > 253 or not _NAME.match(name)):
        yield Problem(
            "metadata.name",
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '
            "'-' or '.', and must start and end with an alphanumeric character",
        )


def _raise(kind: str, obj: Obj, found: list[Problem]) -> None:
    if found:
        raise Invalid.of(kind, name_of(obj), found, _GROUP.get(kind, ""))
