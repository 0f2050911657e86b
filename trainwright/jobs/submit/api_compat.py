"""Converts a TrainJob to the API version of Trainer that the cluster serves. Pure.

Trainer 2.1 has `podTemplateOverrides` instead of `runtimePatches`, and no `activeDeadlineSeconds`. API servers silently drop
unknown fields: the job would run without its volume, or without its deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of
from trainwright.submission.jobs_client import ServedSchema


@dataclass(frozen=True)
class ServedForm:
    """The TrainJob to send, and the deadline in seconds that the client must enforce because the cluster does not."""

    trainjob: Obj
    run_deadline: int | None = None


def served_form(trainjob: Obj, schema: ServedSchema | None) -> ServedForm:
    """Convert a TrainJob to the served schema. Raises Invalid naming each field that the schema does not have."""
    if schema is None:
        return ServedForm(trainjob)
    spec, problems, deadline = dict(trainjob["spec"]), [], None
    if "activeDeadlineSeconds" in spec and not schema.has("activeDeadlineSeconds"):
        deadline = int(spec.pop("activeDeadlineSeconds"))
    if "runtimePatches" in spec and not schema.has("runtimePatches") and schema.has("podTemplateOverrides"):
        patches = spec.pop("runtimePatches")
        problems = [problem for patch in patches for problem in _inexpressible(patch)]
        spec |= _as_overrides(patches)
    problems += [Problem(field, "TrainJobs on this cluster have no such field") for field in schema.unserved(spec)]
    if problems:
        raise Invalid.of("TrainJob", name_of(trainjob), problems, "trainer.kubeflow.org")
    return ServedForm({**trainjob, "spec": spec}, deadline)


def dropped_fields(sent: Obj, answered: Obj) -> list[str]:
    """Return the fields of `spec` that were sent but dropped by the API server."""
    kept = answered.get("spec") or {}
    return [f"spec.{field}" for field, value in sent["spec"].items() if field not in kept and value not in (False, [], {})]


def _as_overrides(patches: list[Obj]) -> Obj:
    """Convert pod patches to `podTemplateOverrides`, and JobSet labels and annotations to fields of the spec."""
    fields: Obj = {}
    overrides = []
    for patch in patches:
        template = _template(patch)
        for group in ("labels", "annotations"):
            if entries := (template.get("metadata") or {}).get(group):
                fields[group] = {**fields.get(group, {}), **entries}
        for job in (template.get("spec") or {}).get("replicatedJobs") or []:
            if pods := ((job.get("template") or {}).get("spec") or {}).get("template"):
                overrides.append({"targetJobs": [{"name": job["name"]}], **pods})
    return fields | ({"podTemplateOverrides": overrides} if overrides else {})


def _inexpressible(patch: Obj) -> Iterator[Problem]:
    """Yield the parts of a patch that concern neither pods nor the JobSet's labels and annotations."""
    for job in (_template(patch).get("spec") or {}).get("replicatedJobs") or []:
        template = job.get("template") or {}
        if template.get("metadata"):
            yield Problem(
                f"spec.runtimePatches.replicatedJobs[{job['name']}].template.metadata",
                "podTemplateOverrides, which this cluster has instead, does not support it",
            )


def _template(patch: Obj) -> Obj:
    return (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
