"""What a submission creates: plans its TrainJob, converts it to the API version of Trainer that the cluster serves, and previews
all objects.

Trainer 2.1 has `podTemplateOverrides` instead of `runtimePatches`, and no `activeDeadlineSeconds`. API servers silently drop
unknown fields: the job would run without its volume, or without its deadline. A preview creates nothing, and needs no cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwright.api.errors import Invalid, Problem
from trainwright.api.kinds import JOBSET, SECRET
from trainwright.api.objects import Obj, name_of
from trainwright.api.rules.trainjob import idle_settings
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.credentials.store_variables import has_store_variables
from trainwright.jobs.manifest.mounts import MOUNT
from trainwright.jobs.manifest.resolved_request import ResolvedRequest, pod_spec_of, trainer_container, training_jobs
from trainwright.jobs.manifest.resume_patch import has_resume_point, resume_warnings
from trainwright.jobs.manifest.trainjob_manifest import NO_PREVIOUS, PreviousAttempt, trainjob_manifest
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import prefers_own_checkpoint
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.submit.owned_objects import code_config_maps
from trainwright.jobs.submit.resolve import resolve_with
from trainwright.jobs.submit.workspace_claim import claim_manifest
from trainwright.materialize import materialize
from trainwright.materialize.keys import PlaceholderKeys
from trainwright.submission.jobs_client import JobsClient, Mode, ServedSchema, served_trainjob

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


def dropped_fields(sent: Obj, answered: Obj) -> list[str]:
    """Return the fields of `spec` that were sent but dropped by the API server."""
    kept = answered.get("spec") or {}
    return [f"spec.{field}" for field, value in sent["spec"].items() if field not in kept and value not in (False, [], {})]


@dataclass(frozen=True)
class Preview:
    """The first attempt of a step: its TrainJob, and the objects that the `builder` builds from it. Secrets have no data.

    `needed` are the new claim and the packed code, which are created before the TrainJob if they do not exist.
    """

    trainjob: Obj
    objects: tuple[Obj, ...]
    needed: tuple[Obj, ...]
    mode: Mode
    builder: str
    runtime: str
    warnings: tuple[str, ...]


def preview_submission(request: TrainRequest, identity: Identity, namespace: str, cluster: Cluster | None) -> Preview:
    """Return what `submit_or_adopt` would create for a step without earlier attempts.

    Without a cluster the bundled runtimes and the newest version of Trainer count. Raises RuntimeNotFound, IncompatibleRuntime,
    PolicyMissing, Invalid, ValueError (bad workspace, BadCode), and ApiError of reading the runtime.
    """
    client = JobsClient.of(cluster) if cluster is not None else None
    resolved, choice = resolve_with(client, request, namespace, bundled=client is None or client.uses_bundled_runtimes)
    plan = plan_submission(resolved, identity, namespace)
    trainjob = plan.trainjob
    if client is not None:
        client.check_plugins(trainjob, resolved.runtime, namespace)
        trainjob = served_form(trainjob, served_trainjob(client)).trainjob
        objects = client.build(plan.trainjob, trainjob, resolved.runtime, keys=PlaceholderKeys()).objects
    else:
        objects = materialize(plan.trainjob, resolved.runtime)
    needed = list(code_config_maps(trainjob, resolved.code)) if resolved.code is not None else []
    if (workspace := request.workspace) is not None and workspace.new is not None:
        needed.insert(0, claim_manifest(workspace, workspace.new, identity, namespace, resolved.nodes))
    return Preview(
        trainjob,
        tuple(map(_without_data, objects)),
        tuple(needed),
        (client or JobsClient).mode,
        (client or JobsClient).builder,
        str(choice),
        (*resolved.warnings, *plan.warnings),
    )


def _without_data(obj: Obj) -> Obj:
    if obj["kind"] != SECRET.kind:
        return obj
    return {name: value for name, value in obj.items() if name not in ("data", "stringData")}


def applicable_manifests(
    request: TrainRequest, identity: Identity, namespace: str, client: JobsClient
) -> tuple[list[Obj], list[str]]:
    """Return the manifests of a step as a person would create them with kubectl, in this order and without owners; and warnings.

    The last one is the TrainJob, or its JobSet on a cluster without a controller. Raises the errors of `preview_submission`.
    """
    preview = preview_submission(request, identity, namespace, client)
    objects, warnings = [preview.trainjob], list(preview.warnings)
    if client.job_kind == JOBSET:
        objects = [each for each in preview.objects if each["kind"] != SECRET.kind]
        if len(objects) < len(preview.objects):
            warnings.append("the Secrets of this runtime are not written here: each job has other keys")
    return [*preview.needed, *objects], warnings
