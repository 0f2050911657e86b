"""The kinds that admission governs: for each its schema, its defaults, its rules, and who asks them on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.api import core_shapes, kinds
from trainwright.api.core_defaults import (
    claim_defaults,
    event_defaults,
    event_times,
    job_written,
    pod_template_defaults,
    pod_written,
    priority_defaults,
)
from trainwright.api.core_rules import (
    CLAIM_RULES,
    CONFIG_MAP_RULES,
    EVENT_RULES,
    LEASE_RULES,
    POD_TEMPLATE_RULES,
    SECRET_RULES,
    SERVICE_RULES,
)
from trainwright.api.defaults import job_defaults, job_labels, jobset_defaults
from trainwright.api.job_rules import JOB_RULES
from trainwright.api.job_shapes import JOB_SPEC
from trainwright.api.job_status_rules import JOB_STATUS_RULES
from trainwright.api.jobset_rules import JOBSET_RULES
from trainwright.api.jobset_shapes import JOBSET, kind_shape
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.pod_defaults import pod_defaults
from trainwright.api.pod_rules import POD_RULES, pod_name_warnings
from trainwright.api.pod_shapes import POD_SPEC
from trainwright.api.runtime_rules import CLUSTER_RUNTIME_RULES, NAMESPACED_RUNTIME_RULES, cluster_runtime_warnings
from trainwright.api.runtime_shapes import RUNTIME
from trainwright.api.shapes import Record
from trainwright.api.trainjob_rules import TRAINJOB_RULES, trainjob_defaults, trainjob_warnings
from trainwright.api.trainjob_shapes import TRAINJOB
from trainwright.api.webhook_rules import Case, WebhookRule
from trainwright.api.workload_status_shapes import JOB_STATUS, POD_STATUS


@dataclass(frozen=True)
class Governed:
    """One kind, as admission treats it."""

    kind: Kind
    shape: Record
    rules: tuple[WebhookRule, ...]
    custom: bool = True
    """Defined by a CRD: the schema is asked, and its rules. Built-in kinds are read into types and judged by rules alone."""
    defaults: Callable[[Obj, Obj | None, str], None] | None = None
    """Fills in, in place, what the schema does not; gets the object, what it replaces, and the time."""
    defaults_fill_required: bool = False
    status_rules: tuple[WebhookRule, ...] = ()
    """Asked of a write of the status alone, instead of `rules`."""
    finish: Callable[[Obj], None] | None = None
    """Changes, in place, what has passed."""
    warns: Callable[[Case], Iterator[str]] | None = None
    defaulter: str = ""
    validator: str = ""
    validator_tells_fields: bool = False
    """The webhook answers like an API server, with the causes apart."""

    @property
    def is_read_by_code(self) -> bool:
        """Whether wrong types are met by code that reads the object, before any schema is asked."""
        return bool(self.defaulter) or not self.custom


def _validator_of(kind: Kind) -> str:
    return f"validator.{kind.singular}.{kind.group}"


def _job_finished(job: Obj) -> None:
    job_labels(job)
    job_written(job)


GOVERNED = {
    governed.kind.kind: governed
    for governed in (
        Governed(
            kinds.TRAINJOB,
            TRAINJOB,
            TRAINJOB_RULES,
            defaults=trainjob_defaults,
            warns=trainjob_warnings,
            defaulter=f"defaulter.trainjob.{kinds.TRAINER}",
            validator=_validator_of(kinds.TRAINJOB),
        ),
        Governed(kinds.TRAINING_RUNTIME, RUNTIME, NAMESPACED_RUNTIME_RULES, validator=_validator_of(kinds.TRAINING_RUNTIME)),
        Governed(
            kinds.CLUSTER_TRAINING_RUNTIME,
            RUNTIME,
            CLUSTER_RUNTIME_RULES,
            warns=cluster_runtime_warnings,
            validator=_validator_of(kinds.CLUSTER_TRAINING_RUNTIME),
        ),
        Governed(
            kinds.JOBSET,
            JOBSET,
            JOBSET_RULES,
            defaults=lambda new, old, _now: jobset_defaults(new, old),
            defaults_fill_required=True,
            defaulter="mjobset.kb.io",
            validator="vjobset.kb.io",
            validator_tells_fields=True,
        ),
        Governed(
            kinds.JOB,
            kind_shape(JOB_SPEC, JOB_STATUS),
            JOB_RULES,
            custom=False,
            defaults=lambda new, old, _now: job_defaults(new, old),
            status_rules=JOB_STATUS_RULES,
            finish=_job_finished,
        ),
        Governed(
            kinds.POD,
            kind_shape(POD_SPEC, POD_STATUS),
            POD_RULES,
            custom=False,
            defaults=lambda new, _old, _now: pod_defaults(new),
            finish=pod_written,
            warns=pod_name_warnings,
        ),
        Governed(kinds.CONFIG_MAP, core_shapes.CONFIG_MAP, CONFIG_MAP_RULES, custom=False),
        Governed(kinds.SECRET, core_shapes.SECRET, SECRET_RULES, custom=False),
        Governed(kinds.SERVICE, core_shapes.SERVICE, SERVICE_RULES, custom=False),
        Governed(kinds.NAMESPACE, core_shapes.NAMESPACE, (), custom=False),
        Governed(kinds.NODE, core_shapes.NODE, (), custom=False),
        Governed(kinds.CLAIM, core_shapes.CLAIM, CLAIM_RULES, custom=False, defaults=claim_defaults),
        Governed(kinds.SERVICE_ACCOUNT, core_shapes.SERVICE_ACCOUNT, (), custom=False),
        Governed(
            kinds.POD_TEMPLATE,
            core_shapes.POD_TEMPLATE_OBJECT,
            POD_TEMPLATE_RULES,
            custom=False,
            defaults=pod_template_defaults,
        ),
        Governed(kinds.LIMIT_RANGE, core_shapes.LIMIT_RANGE, (), custom=False),
        Governed(kinds.PRIORITY_CLASS, core_shapes.PRIORITY_CLASS, (), custom=False, defaults=priority_defaults),
        Governed(kinds.RUNTIME_CLASS, core_shapes.RUNTIME_CLASS, (), custom=False),
        Governed(kinds.LEASE, core_shapes.LEASE, LEASE_RULES, custom=False),
        Governed(kinds.EVENT, core_shapes.EVENT, EVENT_RULES, custom=False, defaults=event_defaults, finish=event_times),
    )
}
