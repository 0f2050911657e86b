"""From a request to a TrainJob manifest. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.identity import Identity, label_value
from trainwright.jobs.request import TrainRequest
from trainwright.jobs.resume import AUTO, resume_patch
from trainwright.jobs.scheduling import scheduling_labels, scheduling_patch
from trainwright.jobs.variables import Variables, env_of
from trainwright.jobs.workspace import Workspace

PATCH_MANAGER = "trainwright.dev/workspace"


def trainjob_manifest(request: TrainRequest, identity: Identity, namespace: str, runtime: Obj, generation: int = 1) -> Obj:
    """The TrainJob for a request. `runtime` is the resolved one: a workspace is mounted where it mounts its own volume."""
    spec = _spec(request, runtime)
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": identity.name(generation),
            "namespace": namespace,
            "labels": {
                **request.labels,
                **scheduling_labels(request.queue_name, request.priority_class),
                names.MANAGED_BY_LABEL: "trainwright",
                names.RUN_LABEL: label_value(identity.run),
                names.STEP_LABEL: label_value(identity.step),
            },
            "annotations": {
                **request.annotations,
                names.OWNER_ANNOTATION: str(identity),
                names.GENERATION_ANNOTATION: str(generation),
                names.SPEC_DIGEST_ANNOTATION: spec_digest(spec),
            },
        },
        "spec": spec,
    }


def resuming(trainjob: Obj, runtime: Obj, *, resume: str = AUTO, export: str = "", secret: str = "", continues: str = "") -> Obj:
    """A made TrainJob told where to go on from, see `resume_patch`; its digest stays, and an earlier wish of its is replaced."""
    patch = resume_patch(runtime, resume=resume, export=export, secret=secret, continues=continues)
    if patch is None:
        return trainjob
    others = [entry for entry in trainjob["spec"].get("runtimePatches") or [] if entry.get("manager") != patch["manager"]]
    return {**trainjob, "spec": {**trainjob["spec"], "runtimePatches": [*others, patch]}}


def spec_digest(spec: Obj) -> str:
    """Digest of a wanted spec: equal digests mean that an existing job is the one that is wanted."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _spec(request: TrainRequest, runtime: Obj) -> Obj:
    spec: Obj = {"runtimeRef": {"name": request.runtime, "kind": request.runtime_kind, "apiGroup": "trainer.kubeflow.org"}}
    initializer = {
        "dataset": _initializer(request.dataset_uri, request.dataset_env, request.dataset_secret),
        "model": _initializer(request.model_uri, request.model_env, request.model_secret),
    }
    if any(initializer.values()):
        spec["initializer"] = {step: content for step, content in initializer.items() if content}
    trainer = {
        "image": request.image,
        "command": request.command,
        "args": request.args,
        "env": env_of(request.env),
        "numNodes": request.num_nodes,
        "numProcPerNode": request.num_proc_per_node,
        "resourcesPerNode": request.resources_per_node,
    }
    spec["trainer"] = {field: value for field, value in trainer.items() if value not in (None, "", [], {})}
    if request.queue_name:
        spec["suspend"] = True  # the queue is what lets it start
    if patches := list(_patches(request, runtime)):
        spec["runtimePatches"] = patches
    if request.active_deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = request.active_deadline_seconds
    return spec


def _patches(request: TrainRequest, runtime: Obj) -> Iterator[Obj]:
    if request.workspace:
        yield _workspace_patch(Workspace.parse(request.workspace), runtime)
    scheduling = scheduling_patch(
        runtime,
        topology=request.topology,
        node_selector=request.node_selector,
        tolerations=request.tolerations,
        affinity=request.affinity,
    )
    if scheduling is not None:
        yield scheduling
    if (resuming := resume_patch(runtime, resume=request.resume, secret=request.resume_secret)) is not None:
        yield resuming


def _initializer(uri: str, env: Variables, secret: str) -> Obj:
    content: Obj = {}
    if uri:
        content["storageUri"] = uri
    if env:
        content["env"] = env_of(env)
    if secret:
        content["secretRef"] = {"name": secret}
    return content


def _workspace_patch(workspace: Workspace, runtime: Obj) -> Obj:
    """Put the claim in the place of the runtime's volume `initializer`, in every step that mounts it.

    The volume merges by name and the mount by its path, so the runtime's own claim name and folder are replaced.
    """
    jobs = []
    for job in runtime["spec"]["template"]["spec"].get("replicatedJobs") or []:
        pod_spec = job["template"]["spec"]["template"]["spec"]
        patched: Obj = {}
        for group in ("initContainers", "containers"):
            for container in pod_spec.get(group) or []:
                mounts = [mount for mount in container.get("volumeMounts") or [] if mount["name"] == names.INITIALIZER_VOLUME]
                if mounts:
                    entry = {"name": container["name"], "volumeMounts": [_mount(mounts[0], workspace)]}
                    patched.setdefault(group, []).append(entry)
        if patched:
            patched["volumes"] = [{"name": names.INITIALIZER_VOLUME, "persistentVolumeClaim": {"claimName": workspace.claim}}]
            jobs.append({"name": job["name"], "template": {"spec": {"template": {"spec": patched}}}})
    if not jobs:
        raise ValueError(
            f"workspace: the runtime {name_of(runtime)!r} mounts no volume "
            f"{names.INITIALIZER_VOLUME!r} that a workspace could replace"
        )
    return {"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _mount(mount: Obj, workspace: Workspace) -> Obj:
    """The runtime's mount with the workspace's folder; an expression for its own folder gives way to it."""
    changed: Obj = {"name": mount["name"], "mountPath": mount["mountPath"]}
    changed["subPathExpr" if "subPathExpr" in mount else "subPath"] = workspace.path or "."
    return changed
