"""Builds the TrainJob manifest of a request. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, copy_of, labels_of, name_of
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.credentials.store_variables import exclude_names, hub_variables, initializer_secrets
from trainwright.jobs.manifest.mounts import (
    code_patch,
    folder_uri,
    initializer_variables,
    is_own_initializer,
    volume_patches,
    workspace_patches,
)
from trainwright.jobs.manifest.resolved_request import ANCESTOR_OF_KIND, ResolvedRequest, initializer_container
from trainwright.jobs.manifest.resume_patch import inputs_patch, resume_patch
from trainwright.jobs.manifest.runtime_patch import scheduling_labels, scheduling_patch
from trainwright.jobs.manifest.sources import claim_source_patches, claim_variables
from trainwright.jobs.manifest.training_program import loads_best_model, training_command, training_digest
from trainwright.jobs.request.checks import env_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.deadline_timer import DEADLINE
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import Kind, label_value
from trainwright.jobs.state.usage import prices_of_runtime
from trainwright.jobs.trainers.report_settings import RUNTIMES_OF_TRL, report_settings


@dataclass(frozen=True)
class PreviousAttempt:
    """State that a job inherits from the previous attempt: the `preemptions` and `retries` so far, and in `resumes_from` the
    comma-separated UIDs of the JobSets from whose checkpoints it resumes, or None.
    """

    preemptions: int = 0
    resumes_from: str | None = None
    retries: int = 0


NO_PREVIOUS = PreviousAttempt()


def trainjob_manifest(
    resolved: ResolvedRequest,
    identity: Identity,
    namespace: str,
    attempt: int = 1,
    *,
    previous: PreviousAttempt = NO_PREVIOUS,
    export: str = "",
) -> Obj:
    """Build the TrainJob of a request. `export` is the URI of a checkpoint that the job resumes from if its volume has none."""
    request, runtime, code = resolved.request, resolved.runtime, resolved.code
    spec = _spec(resolved, identity)
    digest = spec_digest(spec | _with_patches(spec, _resume_patches(request, runtime)), code)
    patches = list(_resume_patches(request, runtime, export=export, resumes_from=previous.resumes_from or ""))
    if code is not None:
        patches.append(code_patch(identity.name(attempt), code, runtime))
    manifest = request.manifest or {}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": identity.name(attempt),
            "namespace": namespace,
            "labels": {
                **without_own(labels_of(manifest)),
                **without_own(request.labels),
                **scheduling_labels(request.placement.queue_name, request.placement.priority_class),
                names.MANAGED_BY_LABEL: "trainwright",
                names.RUN_LABEL: label_value(identity.run),
                names.STEP_LABEL: label_value(identity.step),
                **identity.submitter.label_values(),
            },
            "annotations": {
                **prices_of_runtime(runtime),
                **without_own(annotations_of(manifest)),
                **without_own(request.placement.annotations),
                **_input_annotations(request, code),
                **({names.RUN_FOLDER_ANNOTATION: folder_uri(request.workspace, identity.folder)} if request.workspace else {}),
                **({names.FOLDER_SINCE_ANNOTATION: identity.folder_since} if identity.folder_since else {}),
                names.TRAINING_DIGEST_ANNOTATION: training_digest(resolved),
                **_previous_annotations(previous),
                names.OWNER_ANNOTATION: str(identity),
                names.ATTEMPT_ANNOTATION: str(attempt),
                names.SPEC_DIGEST_ANNOTATION: digest,
                **identity.submitter.annotations(),
            },
        },
        "spec": spec | _with_patches(spec, patches),
    }


def with_resume(trainjob: Obj, runtime: Obj, *, resume: str, secret: str = "") -> Obj:
    """Return a user's TrainJob with a patch that sets where to resume; an existing patch by this manager is replaced."""
    patch = resume_patch(runtime, resume=resume, secret=secret)
    if patch is None:
        return trainjob
    others = [entry for entry in trainjob["spec"].get("runtimePatches") or [] if entry.get("manager") != patch["manager"]]
    return {**trainjob, "spec": {**trainjob["spec"], "runtimePatches": [*others, patch]}}


def without_own(given: Mapping[str, str]) -> dict[str, str]:
    """Return labels or annotations of a user without those that only a submission writes: a manifest may be that of another job, whose
    lease, waiting task and folder are not this one's. Prices are for users to set.
    """
    prices = (names.NODE_PRICE_ANNOTATION, names.GPU_PRICE_ANNOTATION)
    return {key: value for key, value in given.items() if not key.startswith(names.OWN_PREFIX) or key in prices}


def spec_digest(spec: Obj, code: PackedCode | None = None) -> str:
    """Return the digest of a requested spec and its code, by which an existing job is compared with a request."""
    hashed = spec if code is None else {**spec, "code": code.digest}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _spec(resolved: ResolvedRequest, identity: Identity) -> Obj:
    """Build the spec without the parts that depend on the attempt: the mount of the code, and where to resume."""
    request = resolved.request
    if request.manifest is not None:
        spec: Obj = copy_of(request.manifest["spec"])
    else:
        spec = _build_spec(resolved, identity)
    if request.placement.queue_name:
        spec["suspend"] = True  # until the queue admits it
    if patches := [*(spec.get("runtimePatches") or []), *_patches(resolved, identity, spec)]:
        spec["runtimePatches"] = patches
    if request.run_deadline is not None:
        spec[DEADLINE] = request.run_deadline
    return spec


def _build_spec(resolved: ResolvedRequest, identity: Identity) -> Obj:
    request = resolved.request
    spec: Obj = {
        "runtimeRef": {
            "name": name_of(resolved.runtime),
            "kind": request.placement.runtime_kind,
            "apiGroup": "trainer.kubeflow.org",
        }
    }
    initializer = {kind: _initializer(resolved, identity, kind) for kind in ANCESTOR_OF_KIND}
    if any(initializer.values()):
        spec["initializer"] = {kind: content for kind, content in initializer.items() if content}
    program, env = training_command(resolved), env_of(request.env)
    trainer = {
        "image": request.image,
        "command": program.command,
        "args": program.args,
        "env": [*env, *exclude_names(hub_variables(request.secrets.hub_secret), env)],
        "numNodes": request.num_nodes,
        "numProcPerNode": request.num_proc_per_node,
        "resourcesPerNode": request.resources_per_node,
    }
    spec["trainer"] = {field: value for field, value in trainer.items() if value not in (None, "", [], {})}
    return spec


def _patches(resolved: ResolvedRequest, identity: Identity, spec: Obj) -> Iterator[Obj]:
    request, runtime = resolved.request, resolved.runtime
    yield from request.placement.runtime_patches
    if request.workspace is not None:
        yield from workspace_patches(resolved, request.workspace, identity.folder)
    yield from claim_source_patches(resolved)
    scheduling = scheduling_patch(
        runtime,
        topology=request.placement.topology,
        node_selector=request.placement.node_selector,
        tolerations=request.placement.tolerations,
        affinity=request.placement.affinity,
    )
    if scheduling is not None:
        yield scheduling
    yield from volume_patches(request, runtime)
    trainer = resolved.trainer.name if resolved.trainer is not None else ""
    more = dict(resolved.program.start_variables) if resolved.program is not None else {}
    given = {
        names.DATASET_SOURCE_VARIABLE: request.dataset_uri if request.dataset_digest else "",
        names.MODEL_SOURCE_VARIABLE: request.model_uri if request.model_digest else "",
    }
    more |= {name: uri.partition("?")[0] for name, uri in given.items() if uri}  # a query may be a signature
    if loads_best_model(spec, runtime):
        more[names.LOADS_BEST_VARIABLE] = "true"
    more[names.TRAINING_VARIABLE] = training_digest(resolved)
    inputs = inputs_patch(runtime, dataset=request.dataset_digest, model=request.model_digest, trainer=trainer, more=more)
    if inputs is not None:
        yield inputs


def _resume_patches(request: TrainRequest, runtime: Obj, *, export: str = "", resumes_from: str = "") -> Iterator[Obj]:
    """Yield the patch that sets where to resume; none for `auto` without an export."""
    patch = resume_patch(
        runtime,
        resume=request.resume,
        export=export,
        secret=request.secret_for_resume,
        resumes_from=resumes_from,
        workspace=request.workspace,
    )
    if patch is not None:
        yield patch


def _with_patches(spec: Obj, patches: Iterable[Obj]) -> Obj:
    combined = [*(spec.get("runtimePatches") or []), *patches]
    return {"runtimePatches": combined} if combined else {}


def _initializer(resolved: ResolvedRequest, identity: Identity, kind: Kind) -> Obj:
    """Return the initializer of a kind; empty if the runtime has no such step and the input is mounted."""
    request, is_mounted = resolved.request, kind in resolved.inputs
    source = request.source(kind)
    uri, env = source.uri, env_of(source.env)
    if initializer_container(resolved.runtime, ANCESTOR_OF_KIND[kind]) is None and is_mounted:
        return {}
    content: Obj = {}
    if uri:
        content["storageUri"] = uri
    if not is_mounted:  # mounted inputs need no credentials
        env += exclude_names(initializer_secrets(uri, request.secrets.store_secret, request.secrets.hub_secret), env)
    env += exclude_names(initializer_variables(resolved, kind, identity.folder), env)
    env += exclude_names(claim_variables(resolved, kind), env)
    env += exclude_names(_trainer_variable(resolved, kind), env)
    env += exclude_names(_report_variables(resolved, kind), env)
    if kind == "dataset":
        env += exclude_names(_cache_variables(request), env)
    if env:
        content["env"] = env
    if source.secret:
        content["secretRef"] = {"name": source.secret}
    return content


def _trainer_variable(resolved: ResolvedRequest, kind: Kind) -> list[Obj]:
    """Return the variable that tells Trainwright's initializer whom the rows are for, if the builtin trainer does not take all."""
    trainer, container = resolved.trainer, initializer_container(resolved.runtime, ANCESTOR_OF_KIND[kind])
    if kind != "dataset" or trainer is None or not trainer.rows or container is None or not is_own_initializer(container):
        return []
    return [{"name": names.DATASET_TRAINER_VARIABLE, "value": trainer.name}]


def _cache_variables(request: TrainRequest) -> list[Obj]:
    """Return the variables for a data cache, as the Kubeflow SDK's DataCacheInitializer names them. CLUSTER_SIZE includes the head."""
    nodes = request.data.num_data_nodes
    values = {
        "METADATA_LOC": request.data.metadata_loc,
        "CLUSTER_SIZE": "" if nodes is None else str(nodes + 1),
        "WORKER_MEM": request.data.worker_mem,
    }
    return [{"name": name, "value": value} for name, value in values.items() if value]


def _report_variables(resolved: ResolvedRequest, kind: Kind) -> list[Obj]:
    """Return the variables for the report on a dataset that the job prepares: its model, and how TRL will cut the rows.

    A model that is mounted, or on a claim, cannot be read there. Another runtime than ours may have further arguments.
    """
    request, trainer = resolved.request, resolved.trainer
    is_readable = request.model_uri and not request.model_uri.startswith("pvc:") and not resolved.inputs
    if not is_readable or not _trainer_variable(resolved, kind) or trainer is None:
        return []
    settings = report_settings(request.settings, trainer.name if name_of(resolved.runtime) in RUNTIMES_OF_TRL else "")
    values = {"model_uri": request.model_uri, **settings}
    return [{"name": f"{names.DATASET_VARIABLES}{name.upper()}", "value": str(value)} for name, value in values.items()]


def _input_annotations(request: TrainRequest, code: PackedCode | None) -> dict[str, str]:
    values = {
        names.DATASET_DIGEST_ANNOTATION: request.dataset_digest,
        names.MODEL_DIGEST_ANNOTATION: request.model_digest,
        names.CODE_ANNOTATION: f"{code.source} sha256:{code.digest}" if code is not None else "",
    }
    return {annotation: value for annotation, value in values.items() if value}


def _previous_annotations(previous: PreviousAttempt) -> dict[str, str]:
    annotations = {}
    if previous.preemptions:
        annotations[names.PREEMPTIONS_ANNOTATION] = str(previous.preemptions)
    if previous.retries:
        annotations[names.RETRIES_ANNOTATION] = str(previous.retries)
    if previous.resumes_from is not None:
        annotations[names.RESUMES_FROM_ANNOTATION] = previous.resumes_from
    return annotations
