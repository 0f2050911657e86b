"""The Flux policy: an init container copies Flux into the pods, and its brokers run the program.

Like MPI it identifies the replicated job by the name `node`. Source: Trainer's flux plugin (reference sections 2.15, 4.2 rule 26).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, named
from trainwright.materialize.draft import Draft, PodSet
from trainwright.materialize.flux_scripts import FluxJob, entrypoint_script, init_script
from trainwright.materialize.ownership import owned_object
from trainwright.materialize.resources import gpu_count, resources_for_process_count
from trainwright.materialize.upsert import upsert_mount, upsert_volume

INSTALLER = "flux-installer"
_SCRIPTS = "/etc/flux-config"
_DEFAULTS = {
    "FLUX_VIEW_IMAGE": "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
    "FLUX_NETWORK_DEVICE": "eth0",
    "FLUX_QUEUE_POLICY": "fcfs",
}


class FluxPolicy:
    name = "flux"

    def validate(self, draft: Draft) -> Iterator[Problem]:
        if draft.policy("flux") is None:
            return
        if (draft.trainer or {}).get("numNodes") is None:  # upstream admits this and then crashes
            message = "Required value: the Flux runtime requires the number of nodes"
            yield Problem("spec.trainer.numNodes", message, "FieldValueRequired")
        pods = draft.pods_named(names.NODE)
        if pods is not None and named(pods.pod_spec.get("initContainers"), INSTALLER) is not None:
            message = f"Invalid value: the runtime must not have an init container {INSTALLER!r} of its own"
            yield Problem("spec.trainer.initContainers", message)

    def enforce_ml_policy(self, draft: Draft) -> None:
        if draft.policy("flux") is None or draft.trainer is None:
            return
        pods = draft.pods_named(names.NODE)
        if pods is not None:
            _install(draft, pods)
        wrapped = ["/bin/bash", f"{_SCRIPTS}/entrypoint.sh", _original_command(draft)]
        draft.trainer["command"] = wrapped
        draft.trainer.pop("args", None)  # they are part of the wrapped command; the runtime's args are kept

    def build(self, draft: Draft) -> None:
        flux = draft.policy("flux")
        if flux is None:
            return
        settings, trainer = _settings(draft), draft.trainer or {}
        job = FluxJob(
            name=draft.name,
            namespace=draft.namespace,
            nodes=trainer["numNodes"],
            tasks=int(trainer.get("numProcPerNode") or flux["numProcPerNode"]),
            gpus=gpu_count(resources_for_process_count(draft)),
            device=settings["FLUX_NETWORK_DEVICE"],
            queue_policy=settings["FLUX_QUEUE_POLICY"],
        )
        scripts = owned_object(draft, "v1", "ConfigMap", _scripts_name(draft))
        data = {"init.sh": init_script(job), "entrypoint.sh": entrypoint_script(job)}
        draft.companions += [scripts | {"data": data}, _certificate(draft)]


def _settings(draft: Draft) -> dict[str, str]:
    """Return settings from variables with a value: the runtime's container first, then the TrainJob."""
    pods = draft.pods_named(names.NODE)
    container = (pods.container(names.NODE) if pods is not None else None) or {}
    settings = dict(_DEFAULTS)
    for variable in [*(container.get("env") or []), *((draft.trainer or {}).get("env") or [])]:
        if variable["name"] in settings and variable.get("value"):
            settings[variable["name"]] = variable["value"]
    return settings


def _original_command(draft: Draft) -> str:
    """Return the original command as one text, without quoting and without the runtime's arguments."""
    trainer, pods = draft.trainer or {}, draft.trainer_pods()
    container = (pods.container(names.NODE) if pods is not None else None) or {}
    return " ".join([*(trainer.get("command") or container.get("command") or []), *(trainer.get("args") or [])]).strip()


def _install(draft: Draft, pods: PodSet) -> None:
    scripts = _scripts_name(draft)
    for volume in (
        {"name": "spack-install", "emptyDir": {}},
        {"name": "flux-install", "emptyDir": {}},
        {"name": scripts, "configMap": {"name": scripts, "defaultMode": 0o755}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        {"name": "flux-curve", "secret": {"secretName": f"{draft.name}-flux-curve", "defaultMode": 0o400}},
    ):
        upsert_volume(pods.pod_spec, volume)
    shared: Obj = {"name": "flux-install", "mountPath": "/mnt/flux"}
    config: Obj = {"name": scripts, "mountPath": _SCRIPTS, "readOnly": True}
    installer = {
        "name": INSTALLER,
        "image": _settings(draft)["FLUX_VIEW_IMAGE"],
        "command": ["/bin/bash", f"{_SCRIPTS}/init.sh"],
        "volumeMounts": [dict(shared), dict(config)],
    }
    pods.pod_spec.setdefault("initContainers", []).append(installer)
    container = pods.container(names.NODE)
    if container is None:
        return
    for mount in (
        shared,
        {"name": "spack-install", "mountPath": "/opt/software"},
        config,
        {"name": "flux-curve", "mountPath": "/curve", "readOnly": True},
        {"name": "shared-memory", "mountPath": "/dev/shm", "readOnly": True},  # noqa: S108  # a mount in the pod
    ):
        upsert_mount(container, mount)


def _certificate(draft: Draft) -> Obj:
    text = draft.keys.curve_certificate(draft.name)
    secret = owned_object(draft, "v1", "Secret", f"{draft.name}-flux-curve")
    return secret | {"data": {"curve.cert": b64encode(text.encode()).decode()}}


def _scripts_name(draft: Draft) -> str:
    return f"{draft.name}-flux-entrypoint"
