"""The admission specs of all kinds: schema, defaults, rules, and which component checks them on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from trainwright.api import kinds
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.rules.core import (
    BINDING_RULES,
    BUDGET_RULES,
    CLAIM_RULES,
    CONFIG_MAP_RULES,
    DEPLOYMENT_RULES,
    EVENT_RULES,
    LEASE_RULES,
    NETWORK_POLICY_RULES,
    NODE_RULES,
    POD_TEMPLATE_RULES,
    PRIORITY_CLASS_RULES,
    ROLE_RULES,
    RUNTIME_CLASS_RULES,
    SECRET_RULES,
    SERVICE_RULES,
    not_run_warnings,
)
from trainwright.api.rules.defaults import (
    binding_defaults,
    claim_defaults,
    deployment_defaults,
    event_defaults,
    event_times,
    job_defaults,
    job_labels,
    job_written,
    jobset_defaults,
    network_policy_defaults,
    pod_defaults,
    pod_template_defaults,
    pod_written,
    priority_defaults,
)
from trainwright.api.rules.job import JOB_RULES, JOB_STATUS_RULES
from trainwright.api.rules.jobset import JOBSET_RULES
from trainwright.api.rules.pod import POD_RULES, pod_name_warnings
from trainwright.api.rules.problems import AdmissionRequest, WebhookRule
from trainwright.api.rules.trainjob import (
    CLUSTER_RUNTIME_RULES,
    NAMESPACED_RUNTIME_RULES,
    TRAINJOB_RULES,
    cluster_runtime_warnings,
    trainjob_defaults,
    trainjob_warnings,
)
from trainwright.api.schema.published import struct_named
from trainwright.api.schema.types import Struct


@dataclass(frozen=True)
class AdmissionSpec:
    """The admission of one kind."""

    kind: Kind
    rules: tuple[WebhookRule, ...]
    custom: bool = True
    """Defined by a CRD with a schema and CEL rules. Built-in kinds are decoded into types and validated by rules alone."""
    defaults: Callable[[Obj, Obj | None, str], None] | None = None
    """Sets, in place, defaults outside the schema; called with the object, the object that it replaces, and the time."""
    defaults_fill_required: bool = False
    status_rules: tuple[WebhookRule, ...] = ()
    """Checked for a status write instead of `rules`."""
    finish: Callable[[Obj], None] | None = None
    """Changes, in place, an object that passed validation."""
    warns: Callable[[AdmissionRequest], Iterator[str]] | None = None
    defaulter: str = ""
    validator: str = ""
    validator_tells_fields: bool = False
    """The webhook returns causes separately, like an API server."""

    @cached_property
    def schema(self) -> Struct:
        return struct_named(self.kind.kind)

    @property
    def is_read_by_code(self) -> bool:
        """Whether the object is decoded, so that wrong types fail, before the schema check."""
        return bool(self.defaulter) or not self.custom


def _validator_of(kind: Kind) -> str:
    return f"validator.{kind.singular}.{kind.group}"


def _job_finished(job: Obj) -> None:
    job_labels(job)
    job_written(job)


ADMISSION_SPECS = {
    admission_spec.kind.kind: admission_spec
    for admission_spec in (
        AdmissionSpec(
            kinds.TRAINJOB,
            TRAINJOB_RULES,
            defaults=trainjob_defaults,
            warns=trainjob_warnings,
            defaulter=f"defaulter.trainjob.{kinds.TRAINER}",
            validator=_validator_of(kinds.TRAINJOB),
        ),
        AdmissionSpec(kinds.TRAINING_RUNTIME, NAMESPACED_RUNTIME_RULES, validator=_validator_of(kinds.TRAINING_RUNTIME)),
        AdmissionSpec(
            kinds.CLUSTER_TRAINING_RUNTIME,
            CLUSTER_RUNTIME_RULES,
            warns=cluster_runtime_warnings,
            validator=_validator_of(kinds.CLUSTER_TRAINING_RUNTIME),
        ),
        AdmissionSpec(
            kinds.JOBSET,
            JOBSET_RULES,
            defaults=lambda new, old, _now: jobset_defaults(new, old),
            defaults_fill_required=True,
            defaulter="mjobset.kb.io",
            validator="vjobset.kb.io",
            validator_tells_fields=True,
        ),
        AdmissionSpec(
            kinds.JOB,
            JOB_RULES,
            custom=False,
            defaults=lambda new, old, _now: job_defaults(new, old),
            status_rules=JOB_STATUS_RULES,
            finish=_job_finished,
        ),
        AdmissionSpec(
            kinds.POD,
            POD_RULES,
            custom=False,
            defaults=lambda new, _old, _now: pod_defaults(new),
            finish=pod_written,
            warns=pod_name_warnings,
        ),
        AdmissionSpec(kinds.CONFIG_MAP, CONFIG_MAP_RULES, custom=False),
        AdmissionSpec(kinds.SECRET, SECRET_RULES, custom=False),
        AdmissionSpec(kinds.SERVICE, SERVICE_RULES, custom=False),
        AdmissionSpec(kinds.NAMESPACE, (), custom=False),
        AdmissionSpec(kinds.NODE, NODE_RULES, custom=False),
        AdmissionSpec(kinds.CLAIM, CLAIM_RULES, custom=False, defaults=claim_defaults),
        AdmissionSpec(kinds.SERVICE_ACCOUNT, (), custom=False),
        AdmissionSpec(
            kinds.POD_TEMPLATE,
            POD_TEMPLATE_RULES,
            custom=False,
            defaults=pod_template_defaults,
        ),
        AdmissionSpec(kinds.LIMIT_RANGE, (), custom=False),
        AdmissionSpec(kinds.PRIORITY_CLASS, PRIORITY_CLASS_RULES, custom=False, defaults=priority_defaults),
        AdmissionSpec(kinds.ROLE, ROLE_RULES, custom=False),
        AdmissionSpec(kinds.CLUSTER_ROLE, ROLE_RULES, custom=False),
        *(
            AdmissionSpec(kind, BINDING_RULES, custom=False, defaults=binding_defaults)
            for kind in (kinds.ROLE_BINDING, kinds.CLUSTER_ROLE_BINDING)
        ),
        AdmissionSpec(
            kinds.DEPLOYMENT,
            DEPLOYMENT_RULES,
            custom=False,
            defaults=deployment_defaults,
            warns=not_run_warnings,
        ),
        AdmissionSpec(
            kinds.NETWORK_POLICY,
            NETWORK_POLICY_RULES,
            custom=False,
            defaults=network_policy_defaults,
            warns=not_run_warnings,
        ),
        AdmissionSpec(kinds.DISRUPTION_BUDGET, BUDGET_RULES, custom=False, warns=not_run_warnings),
        AdmissionSpec(kinds.RUNTIME_CLASS, RUNTIME_CLASS_RULES, custom=False),
        AdmissionSpec(kinds.LEASE, LEASE_RULES, custom=False),
        AdmissionSpec(kinds.EVENT, EVENT_RULES, custom=False, defaults=event_defaults, finish=event_times),
    )
}
