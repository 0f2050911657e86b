"""Plans what a submission creates, from the request, the runtime and the previous attempt. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.objects import Obj, name_of
from trainwright.api.rules.idle_settings import idle_settings
from trainwright.jobs.credentials.store_variables import has_store_variables
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.manifest.resume_patch import has_resume_point, resume_warnings
from trainwright.jobs.manifest.training_steps import pod_spec_of, trainer_container, training_jobs
from trainwright.jobs.manifest.trainjob_manifest import NO_PREVIOUS, PreviousAttempt, trainjob_manifest
from trainwright.jobs.manifest.workspace_mounts import MOUNT
from trainwright.jobs.request.resume import prefers_own_checkpoint
from trainwright.jobs.state.identity import Identity

_NAMED_MOUNT = re.compile(rf"(?<![\w./-]){re.escape(MOUNT)}(?![\w.-])")
"""The path, not a part of another one or of a URI such as pvc://workspace/data."""


@dataclass(frozen=True)
class SubmissionPlan:
    """`trainjob` is the manifest; `warnings` apply to a new job, not to an adopted one."""

    trainjob: Obj
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return name_of(self.trainjob)


def plan_submission(
    resolved: ResolvedRequest,
    identity: Identity,
    namespace: str,
    *,
    attempt: int = 1,
    previous: PreviousAttempt = NO_PREVIOUS,
    export: str = "",
) -> SubmissionPlan:
    """Plan the TrainJob of an attempt.

    `previous` is the previous attempt, `export` the URI of the run's latest exported checkpoint ("" for none). Neither of them
    nor the attempt number changes the spec digest, by which existing jobs are compared.
    """
    request, runtime = resolved.request, resolved.runtime
    is_in_empty_folder = identity.folder_since.startswith(f"{attempt}-")
    warnings = list(resume_warnings(runtime, request.resume, 1 if is_in_empty_folder else attempt))
    if has_store_variables(export) and not request.secret_for_resume:
        warnings.append(f"without resume_secret or store_secret the pods cannot read the export {export}")
        export = ""
    trainjob = trainjob_manifest(resolved, identity, namespace, attempt, previous=previous, export=export)
    warnings += [*idle_settings(trainjob, runtime), *_lost_output(resolved)]
    return SubmissionPlan(trainjob, tuple(warnings))


def _lost_output(resolved: ResolvedRequest) -> Iterator[str]:
    """Warn of a program that names the workspace where none is mounted: what it saves there ends with its pod."""
    request, code = resolved.request, resolved.code
    if request.workspace or request.manifest is not None or _keeps_workspace(resolved):
        return
    texts = {
        "func": request.func.source if request.func is not None else "",
        "command": " ".join((*request.command, *request.args)),
    }
    named = [field for field, text in texts.items() if _NAMED_MOUNT.search(text)]
    named += ["code"] if code is not None and code.names_workspace else []
    if named:
        yield (
            f"{named[0]} names {MOUNT}, and the job has no workspace: what it saves there is lost with its pod; set "
            "workspace=pvc://CLAIM"
        )


def _keeps_workspace(resolved: ResolvedRequest) -> bool:
    """Whether a volume that outlives the pod is mounted there."""
    request, runtime = resolved.request, resolved.runtime
    pods = [pod_spec_of(job) for job in training_jobs(runtime)]
    volumes = [*request.placement.volumes, *(volume for pod in pods for volume in pod.get("volumes") or [])]
    kept = {volume.get("name") for volume in volumes if not {"emptyDir", "configMap", "secret", "projected"} & volume.keys()}
    mounts = [*request.placement.volume_mounts, *((trainer_container(runtime) or {}).get("volumeMounts") or [])]
    return any(mount.get("name") in kept and str(mount.get("mountPath")).startswith(MOUNT) for mount in mounts)


def can_resume_from_export(resolved: ResolvedRequest) -> bool:
    """Whether a new job resumes from the latest export of its run, if the volume has no checkpoint."""
    return prefers_own_checkpoint(resolved.request.resume) and has_resume_point(resolved.runtime)


def resumes_from_previous(resolved: ResolvedRequest, *, is_continued: bool) -> bool:
    """Whether a new job also resumes from the checkpoints of a predecessor that it continues, although `resume` says otherwise."""
    return is_continued and not prefers_own_checkpoint(resolved.request.resume) and has_resume_point(resolved.runtime)
