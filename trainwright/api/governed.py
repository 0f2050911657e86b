"""The kinds that admission governs: for each its schema, its defaults, its rules, and who asks them on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.api import kinds
from trainwright.api.defaults import job_defaults, job_labels, jobset_defaults
from trainwright.api.job_rules import JOB_RULES
from trainwright.api.job_shapes import JOB_SPEC
from trainwright.api.job_status_rules import JOB_STATUS_RULES
from trainwright.api.jobset_rules import JOBSET_RULES
from trainwright.api.jobset_shapes import JOBSET, kind_shape
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.api.pod_defaults import pod_defaults
from trainwright.api.pod_rules import POD_RULES
from trainwright.api.pod_shapes import POD_SPEC
from trainwright.api.runtime_rules import CLUSTER_RUNTIME_RULES, NAMESPACED_RUNTIME_RULES, cluster_runtime_warnings
from trainwright.api.runtime_shapes import RUNTIME
from trainwright.api.shapes import ANYTHING, Record
from trainwright.api.trainjob_rules import TRAINJOB_RULES, trainjob_defaults, trainjob_warnings
from trainwright.api.trainjob_shapes import TRAINJOB
from trainwright.api.webhook_rules import Case, WebhookRule


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
            kind_shape(JOB_SPEC, ANYTHING),
            JOB_RULES,
            custom=False,
            defaults=lambda new, old, _now: job_defaults(new, old),
            status_rules=JOB_STATUS_RULES,
            finish=job_labels,
        ),
        Governed(
            kinds.POD,
            kind_shape(POD_SPEC, ANYTHING),
            POD_RULES,
            custom=False,
            defaults=lambda new, _old, _now: pod_defaults(new),
        ),
    )
}
