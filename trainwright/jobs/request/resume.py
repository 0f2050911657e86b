"""Where a new job goes on from, as its pods are told: `auto`, `never`, or an exported checkpoint. Pure.

`auto` is what every start of a pod does by itself, and says nothing: a job without the wish is the same job as ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of, named
from trainwright.jobs.request.training_steps import pod_spec_of, replicated_jobs, step_of_job
from trainwright.jobs.request.workspace import Workspace

AUTO, NEVER = "auto", "never"
PATCH_MANAGER, INPUTS_MANAGER = "trainwright.dev/resume", "trainwright.dev/inputs"
SCHEMES = ("file", "pvc", "s3")
"""Where exports can be read from; `pvc://CLAIM/FOLDER` is mounted beside the workspace."""
STORE_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CA_BUNDLE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""What `resume_secret` may have as keys: a patch of a container names each variable, it cannot import them all."""
_URI = re.compile(r"^([a-z0-9]+)://(.+)$")
_SOURCE = "resume-source"
_MOUNT = "/resume-source"


def checked_resume(value: str) -> str:
    """The wish as it was given. Raises ValueError."""
    if value in (AUTO, NEVER):
        return value
    match = _URI.match(value)
    if not match or match[1] not in SCHEMES or (match[1] == "file" and not match[2].startswith("/")):
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(f"resume: {value!r}: expected auto, never, or the URI of an exported checkpoint ({known})")
    if match[1] == "pvc" and Workspace.parse(value, "resume").new is not None:
        raise ValueError(f"resume: {value!r}: a claim that is yet to be made holds no export")
    return value


def has_resume_point(runtime: Obj) -> bool:
    """Whether a step of the runtime decides at its start where to go on."""
    return any(True for _ in _deciding(runtime))


def resume_patch(
    runtime: Obj,
    *,
    resume: str = AUTO,
    export: str = "",
    secret: str = "",
    continues: str = "",
    workspace: Workspace | None = None,
) -> Obj | None:
    """What tells the runtime's init container of the wish; None where there is none.

    `export` is what `auto` goes on from where the volume has no checkpoint; `secret` names a Secret with STORE_VARIABLES;
    `continues` the jobs (UIDs of JobSets) whose checkpoints are as good as the new job's own. An export on the claim of the
    `workspace` is read through that volume: a pod with two volumes of one claim never starts on Kubernetes 1.34.
    """
    if resume == AUTO and not export:
        return None
    variables = [{"name": names.RESUME_JOB_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": _JOB}}}]
    if continues:
        variables.append({"name": names.RESUMES_FROM_VARIABLE, "value": continues})
    pod: Obj = {}
    container: Obj = {"name": names.RESUME_POINT, "env": variables}
    if resume == AUTO:
        variables.append({"name": names.RESUME_EXPORT_VARIABLE, "value": export})
    elif resume.startswith("pvc://"):
        claim = Workspace.parse(resume, "resume")
        variables.append({"name": names.RESUME_VARIABLE, "value": f"file://{_MOUNT}/{quote(claim.path)}"})
        is_mounted = workspace is not None and workspace.claim == claim.claim
        volume = names.INITIALIZER_VOLUME if is_mounted else _SOURCE
        container["volumeMounts"] = [{"name": volume, "mountPath": _MOUNT, "readOnly": True}]
        if not is_mounted:
            pod["volumes"] = [{"name": volume, "persistentVolumeClaim": {"claimName": claim.claim}}]
    else:
        variables.append({"name": names.RESUME_VARIABLE, "value": resume})
    if secret and resume != NEVER:
        variables += [_optional(variable, secret) for variable in STORE_VARIABLES]
    jobs = [_patched(job, {**pod, "initContainers": [container]}) for job in _deciding(runtime)]
    return {"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def inputs_patch(runtime: Obj, *, dataset: str = "", model: str = "") -> Obj | None:
    """What tells the nodes which prepared dataset and model they must find; None where no digest is known."""
    digests = {names.DATASET_DIGEST_VARIABLE: dataset, names.MODEL_DIGEST_VARIABLE: model}
    variables = [{"name": variable, "value": digest} for variable, digest in digests.items() if digest]
    container = {"name": names.RESUME_POINT, "env": variables}
    jobs = [_patched(job, {"initContainers": [container]}) for job in _deciding(runtime)] if variables else []
    if not jobs:
        return None
    return {"manager": INPUTS_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def resume_problems(resume: str, runtime: Obj) -> Iterator[Problem]:
    """An export that nobody would read."""
    if resume not in (AUTO, NEVER) and not has_resume_point(runtime):
        yield Problem(
            "resume",
            f"the runtime {name_of(runtime)!r} cannot go on from an export: its training step has no init container "
            f"{names.RESUME_POINT!r} (trl-sft has one)",
        )


def resume_warnings(runtime: Obj, resume: str, attempt: int) -> Iterator[str]:
    """What the runtime cannot do of the wish, in words."""
    if has_resume_point(runtime):
        return
    what = f"the runtime {name_of(runtime)!r} has no init container {names.RESUME_POINT!r}"
    if resume == NEVER:
        yield f"{what}: whether it starts afresh is up to its program"
    elif attempt > 1:
        yield f"{what}: whether attempt {attempt} goes on from a checkpoint is up to its program"


def _deciding(runtime: Obj) -> Iterator[Obj]:
    for job in replicated_jobs(runtime):
        trains = step_of_job(job) == names.ANCESTOR_TRAINER
        if trains and named(pod_spec_of(job).get("initContainers"), names.RESUME_POINT) is not None:
            yield job


def _patched(job: Obj, pod: Obj) -> Obj:
    return {"name": job["name"], "template": {"spec": {"template": {"spec": pod}}}}


def _optional(variable: str, secret: str) -> Obj:
    reference = {"name": secret, "key": variable, "optional": True}
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}


_JOB = f"metadata.labels['{names.JOBSET_UID_LABEL}']"
