"""From a request to a TrainJob manifest. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of, copy_of, labels_of, name_of
from trainwright.jobs.code_package import PackedCode
from trainwright.jobs.code_volume import code_patch
from trainwright.jobs.identity import Identity
from trainwright.jobs.label_values import label_value
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.resume import AUTO, inputs_patch, resume_patch
from trainwright.jobs.run_folder import Kind
from trainwright.jobs.scheduling import scheduling_labels, scheduling_patch
from trainwright.jobs.secret_variables import hub_variables, initializer_secrets, without
from trainwright.jobs.training_program import training_words
from trainwright.jobs.training_steps import initializer_container
from trainwright.jobs.variables import env_of
from trainwright.jobs.workspace import Workspace
from trainwright.jobs.workspace_mounts import folder_uri, initializer_variables, mounted_inputs, workspace_patches

_ANCESTORS: dict[Kind, str] = {"dataset": names.ANCESTOR_DATASET, "model": names.ANCESTOR_MODEL}


def trainjob_manifest(
    request: TrainRequest,
    identity: Identity,
    namespace: str,
    runtime: Obj,
    generation: int = 1,
    code: PackedCode | None = None,
) -> Obj:
    """The TrainJob for a request. `runtime` is the resolved one; `code` the request's code, packed.

    Raises ValueError for settings that no builtin trainer takes.
    """
    spec = _spec(request, identity, runtime, code)
    digest = spec_digest(spec, code)
    if code is not None:
        mounted = code_patch(identity.name(generation), code, runtime)
        spec = {**spec, "runtimePatches": [*(spec.get("runtimePatches") or []), mounted]}
    given = request.manifest or {}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": identity.name(generation),
            "namespace": namespace,
            "labels": {
                **labels_of(given),
                **request.labels,
                **scheduling_labels(request.queue_name, request.priority_class),
                names.MANAGED_BY_LABEL: "trainwright",
                names.RUN_LABEL: label_value(identity.run),
                names.STEP_LABEL: label_value(identity.step),
            },
            "annotations": {
                **annotations_of(given),
                **request.annotations,
                **_said_of_inputs(request, code),
                **_said_of_folder(request, identity),
                names.OWNER_ANNOTATION: str(identity),
                names.GENERATION_ANNOTATION: str(generation),
                names.SPEC_DIGEST_ANNOTATION: digest,
            },
        },
        "spec": spec,
    }


def resuming(
    trainjob: Obj,
    runtime: Obj,
    *,
    resume: str = AUTO,
    export: str = "",
    secret: str = "",
    continues: str = "",
    workspace: str = "",
) -> Obj:
    """A made TrainJob told where to resume, see `resume_patch`; its digest stays, and an earlier patch of that kind is replaced."""
    patch = resume_patch(runtime, resume=resume, export=export, secret=secret, continues=continues, workspace=workspace)
    if patch is None:
        return trainjob
    others = [entry for entry in trainjob["spec"].get("runtimePatches") or [] if entry.get("manager") != patch["manager"]]
    return {**trainjob, "spec": {**trainjob["spec"], "runtimePatches": [*others, patch]}}


def spec_digest(spec: Obj, code: PackedCode | None = None) -> str:
    """Digest of a wanted spec and its code: equal digests mean that an existing job is the one that is wanted."""
    wanted = spec if code is None else {**spec, "code": code.digest}
    return hashlib.sha256(json.dumps(wanted, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _spec(request: TrainRequest, identity: Identity, runtime: Obj, code: PackedCode | None) -> Obj:
    """All of the spec but the mount of the code, whose name is that of the job."""
    if request.manifest is not None:
        spec: Obj = copy_of(request.manifest["spec"])
    else:
        spec = _built_spec(request, identity, runtime, code)
    if request.queue_name:
        spec["suspend"] = True  # the queue is what lets it start
    if patches := [*(spec.get("runtimePatches") or []), *_patches(request, identity, runtime)]:
        spec["runtimePatches"] = patches
    if request.run_timeout_seconds is not None:
        spec["activeDeadlineSeconds"] = request.run_timeout_seconds
    return spec


def _built_spec(request: TrainRequest, identity: Identity, runtime: Obj, code: PackedCode | None) -> Obj:
    spec: Obj = {"runtimeRef": {"name": name_of(runtime), "kind": request.runtime_kind, "apiGroup": "trainer.kubeflow.org"}}
    initializer = {kind: _initializer(request, identity, runtime, kind) for kind in _ANCESTORS}
    if any(initializer.values()):
        spec["initializer"] = {kind: content for kind, content in initializer.items() if content}
    words, env = training_words(request, runtime, code), env_of(request.env)
    trainer = {
        "image": request.image,
        "command": words.command,
        "args": words.args,
        "env": [*env, *without(hub_variables(request.hub_secret), env)],
        "numNodes": request.num_nodes,
        "numProcPerNode": request.num_proc_per_node,
        "resourcesPerNode": request.resources_per_node,
    }
    spec["trainer"] = {field: value for field, value in trainer.items() if value not in (None, "", [], {})}
    return spec


def _patches(request: TrainRequest, identity: Identity, runtime: Obj) -> Iterator[Obj]:
    yield from request.runtime_patches
    if request.workspace:
        yield from workspace_patches(request, runtime, identity.folder)
    scheduling = scheduling_patch(
        runtime,
        topology=request.topology,
        node_selector=request.node_selector,
        tolerations=request.tolerations,
        affinity=request.affinity,
    )
    if scheduling is not None:
        yield scheduling
    if (inputs := inputs_patch(runtime, dataset=request.dataset_digest, model=request.model_digest)) is not None:
        yield inputs
    secret = request.resume_secret or request.store_secret
    if (resuming := resume_patch(runtime, resume=request.resume, secret=secret, workspace=request.workspace)) is not None:
        yield resuming


def _initializer(request: TrainRequest, identity: Identity, runtime: Obj, kind: Kind) -> Obj:
    """Empty where the runtime has no such step: the input is mounted then, or nothing is asked for."""
    uri = getattr(request, f"{kind}_uri")
    env = env_of(getattr(request, f"{kind}_env"))
    if initializer_container(runtime, _ANCESTORS[kind]) is None and kind in mounted_inputs(request, runtime):
        return {}
    content: Obj = {}
    if uri:
        content["storageUri"] = uri
    if kind not in mounted_inputs(request, runtime):  # what is there already needs no credentials
        env += without(initializer_secrets(uri, request.store_secret, request.hub_secret), env)
    env += without(initializer_variables(request, runtime, kind, identity.folder), env)
    if env:
        content["env"] = env
    if secret := getattr(request, f"{kind}_secret"):
        content["secretRef"] = {"name": secret}
    return content


def _said_of_inputs(request: TrainRequest, code: PackedCode | None) -> dict[str, str]:
    said = {
        names.DATASET_DIGEST_ANNOTATION: request.dataset_digest,
        names.MODEL_DIGEST_ANNOTATION: request.model_digest,
        names.CODE_ANNOTATION: f"{code.source} sha256:{code.digest}" if code is not None else "",
    }
    return {annotation: value for annotation, value in said.items() if value}


def _said_of_folder(request: TrainRequest, identity: Identity) -> dict[str, str]:
    if not request.workspace:
        return {}
    return {names.RUN_FOLDER_ANNOTATION: folder_uri(Workspace.parse(request.workspace), identity.folder)}
