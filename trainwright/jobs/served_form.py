"""A TrainJob in the form that the cluster's version of Trainer serves. Pure.

Trainer 2.1 has `podTemplateOverrides` where later versions have `runtimePatches`, and no `activeDeadlineSeconds`. What an API
server does not know it drops without a word: the job would train without its volume, or for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.errors import Invalid, Problem
from trainwright.api.objects import Obj, name_of
from trainwright.cluster.served_schema import ServedSchema


@dataclass(frozen=True)
class ServedForm:
    """What is sent, and the seconds of a deadline that the cluster does not keep, so that whoever waits has to."""

    trainjob: Obj
    run_deadline: int | None = None


def served_form(trainjob: Obj, schema: ServedSchema | None) -> ServedForm:
    """Today's form made that of the schema. Raises Invalid with each field that it has no place for."""
    if schema is None:
        return ServedForm(trainjob)
    spec, problems, deadline = dict(trainjob["spec"]), [], None
    if "activeDeadlineSeconds" in spec and not schema.has("activeDeadlineSeconds"):
        deadline = int(spec.pop("activeDeadlineSeconds"))
    if "runtimePatches" in spec and not schema.has("runtimePatches") and schema.has("podTemplateOverrides"):
        patches = spec.pop("runtimePatches")
        problems = [problem for patch in patches for problem in _unsayable(patch)]
        spec |= _as_overrides(patches)
    problems += [Problem(field, "the TrainJobs of this cluster have no such field") for field in schema.unserved(spec)]
    if problems:
        raise Invalid.of("TrainJob", name_of(trainjob), problems, "trainer.kubeflow.org")
    return ServedForm({**trainjob, "spec": spec}, deadline)


def dropped_fields(sent: Obj, answered: Obj) -> list[str]:
    """Fields of `spec` that were sent and that the cluster has not kept."""
    kept = answered.get("spec") or {}
    return [f"spec.{field}" for field, value in sent["spec"].items() if field not in kept and value not in (False, [], {})]


def _as_overrides(patches: list[Obj]) -> Obj:
    """Patches of pods as `podTemplateOverrides`; labels and annotations of the JobSet as those of the spec."""
    fields: Obj = {}
    overrides = []
    for patch in patches:
        template = _template(patch)
        for group in ("labels", "annotations"):
            if said := (template.get("metadata") or {}).get(group):
                fields[group] = {**fields.get(group, {}), **said}
        for job in (template.get("spec") or {}).get("replicatedJobs") or []:
            pods = _pods(job)
            if pods:
                overrides.append({"targetJobs": [{"name": job["name"]}], **pods})
    return fields | ({"podTemplateOverrides": overrides} if overrides else {})


def _unsayable(patch: Obj) -> Iterator[Problem]:
    """What a patch says besides pods and the JobSet's own labels and annotations."""
    for job in (_template(patch).get("spec") or {}).get("replicatedJobs") or []:
        template = job.get("template") or {}
        if template.get("metadata"):
            yield Problem(
                f"spec.runtimePatches.replicatedJobs[{job['name']}].template.metadata",
                "podTemplateOverrides, which this cluster has instead, cannot say it",
            )


def _template(patch: Obj) -> Obj:
    return (patch.get("trainingRuntimeSpec") or {}).get("template") or {}


def _pods(job: Obj) -> Obj:
    return ((job.get("template") or {}).get("spec") or {}).get("template") or {}
