"""Tells the pods of a new job where to resume, by a runtime patch. Pure.

`auto` is the default behaviour of the pods and needs no patch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of, named
from trainwright.jobs.credentials.store_variables import store_variables
from trainwright.jobs.manifest.mounts import SHARED_MOUNT
from trainwright.jobs.manifest.resolved_request import pod_spec_of, replicated_jobs, step_of_job
from trainwright.jobs.manifest.runtime_patch import claim_volume, runtime_patch
from trainwright.jobs.request.workspace import AUTO, LAST, NEVER, Workspace, export_uri_of, prefers_own_checkpoint

PATCH_MANAGER, INPUTS_MANAGER = "trainwright.dev/resume", "trainwright.dev/inputs"
_SOURCE = "resume-source"
_MOUNT = "/resume-source"
_NO_MORE: Mapping[str, str] = MappingProxyType({})


def has_resume_point(runtime: Obj) -> bool:
    """Whether a training step of the runtime has the init container that selects the checkpoint to resume from."""
    return any(True for _ in _jobs_with_resume_point(runtime))


def resume_patch(
    runtime: Obj,
    *,
    resume: str = AUTO,
    export: str = "",
    secret: str = "",
    resumes_from: str = "",
    workspace: Workspace | None = None,
) -> Obj | None:
    """Return the patch with variables for the runtime's init container; None for `auto` without an export.

    `export` is the run's own export, used with `auto` and `weights:URI` if the volume has no checkpoint; `secret` is a Secret with
    the variables of the stores; `resumes_from` are UIDs of JobSets whose checkpoints count as the new job's own. An export on the
    claim of the `workspace` is read through that volume.
    """
    if resume == AUTO and not export:  # what the runtime does anyway
        return None
    variables = [{"name": names.RESUME_JOB_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": _JOB}}}]
    if resumes_from:
        variables.append({"name": names.RESUMES_FROM_VARIABLE, "value": resumes_from})
    pod: Obj = {}
    container: Obj = {"name": names.RESUME_POINT, "env": variables}
    source = export_uri_of(resume)
    if (claim := _claim_of(source, workspace)) is not None:
        volume, pod = claim_volume(_SOURCE, claim.claim, workspace)
        container["volumeMounts"] = [{"name": volume, "mountPath": _MOUNT, "readOnly": True}]
        resume = resume.replace(source, f"file://{_MOUNT}/{quote(claim.path)}")
    if resume != AUTO:
        variables.append({"name": names.RESUME_VARIABLE, "value": resume})
    export = export if prefers_own_checkpoint(resume) else ""
    if export:
        variables.append({"name": names.RESUME_EXPORT_VARIABLE, "value": export})
    if secret:
        known = dict.fromkeys(variable for uri in (source, export) if uri for variable in store_variables(uri))
        for variable in known:
            reference = {"name": secret, "key": variable, "optional": True}
            variables.append({"name": variable, "valueFrom": {"secretKeyRef": reference}})
    pod = {**pod, "initContainers": [container]}
    return runtime_patch(PATCH_MANAGER, {job["name"]: pod for job in _jobs_with_resume_point(runtime)})


def _claim_of(source: str, workspace: Workspace | None) -> Workspace | None:
    """Return the claim and the folder of a source on a claim, also of one on the workspace where its steps mount that; else None."""
    if source.startswith("pvc://"):
        return Workspace.parse(source, "resume")
    shared = f"file://{SHARED_MOUNT}/"
    if workspace is None or not source.startswith(shared):
        return None
    path = "/".join(filter(None, (workspace.path, unquote(source.removeprefix(shared)))))
    return Workspace(claim=workspace.claim, path=path)


def inputs_patch(
    runtime: Obj, *, dataset: str = "", model: str = "", trainer: str = "", more: Mapping[str, str] = _NO_MORE
) -> Obj | None:
    """Return the patch with the digests of prepared inputs, which the nodes verify, the name of the builtin trainer, and `more`
    variables of the init container; None if none is known.
    """
    known = {names.DATASET_DIGEST_VARIABLE: dataset, names.MODEL_DIGEST_VARIABLE: model, names.TRAINER_VARIABLE: trainer, **more}
    variables = [{"name": variable, "value": value} for variable, value in known.items() if value]
    pod = {"initContainers": [{"name": names.RESUME_POINT, "env": variables}]}
    pods = {job["name"]: pod for job in _jobs_with_resume_point(runtime)}
    return runtime_patch(INPUTS_MANAGER, pods) if variables and pods else None


def resume_problems(resume: str, runtime: Obj) -> Iterator[Problem]:
    """Yield a problem if the runtime does not support resuming from an export."""
    if resume not in (AUTO, LAST, NEVER) and not has_resume_point(runtime):
        yield Problem(
            "resume",
            f"the runtime {name_of(runtime)!r} cannot resume from an export: its training step has no init container "
            f"{names.RESUME_POINT!r} (trl-sft has one)",
        )


def resume_warnings(runtime: Obj, resume: str, attempt: int) -> Iterator[str]:
    """Yield warnings about a `resume` setting that the runtime does not support."""
    if has_resume_point(runtime):
        return
    prefix = f"the runtime {name_of(runtime)!r} has no init container {names.RESUME_POINT!r}"
    if resume == NEVER:
        yield f"{prefix}: whether it starts from scratch depends on its program"
    elif attempt > 1:
        yield f"{prefix}: whether attempt {attempt} resumes from a checkpoint depends on its program"


def _jobs_with_resume_point(runtime: Obj) -> Iterator[Obj]:
    for job in replicated_jobs(runtime):
        is_training = step_of_job(job) == names.ANCESTOR_TRAINER
        if is_training and named(pod_spec_of(job).get("initContainers"), names.RESUME_POINT) is not None:
            yield job


_JOB = f"metadata.labels['{names.JOBSET_UID_LABEL}']"
