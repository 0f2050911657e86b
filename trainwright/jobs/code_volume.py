"""Packed code on its way to the nodes: ConfigMaps that belong to a TrainJob, mounted by every training container.

They are made before the job, which would wait for them, and tied to it afterwards, so that they go with it; a try that is killed
in between leaves ConfigMaps that the next one finds by their names.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, Conflict, Forbidden
from trainwright.api.kinds import CONFIG_MAP
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.code_package import PackedCode
from trainwright.jobs.training_steps import training_jobs

PATCH_MANAGER = "trainwright.dev/code"
MOUNT = "/trainwright/code"
_VOLUME = "trainwright-code"
_MOST_TRIES = 10


def code_patch(trainjob: str, code: PackedCode, runtime: Obj) -> Obj:
    """The patch that mounts the code in the training containers of the job of that name."""
    sources = [{"configMap": {"name": name}} for name in _names(trainjob, code)]
    volume = {"name": _VOLUME, "projected": {"sources": sources}}
    mount = {"name": _VOLUME, "mountPath": MOUNT, "readOnly": True}
    pod = {"volumes": [volume], "containers": [{"name": names.NODE, "volumeMounts": [mount]}]}
    jobs = [{"name": job["name"], "template": {"spec": {"template": {"spec": pod}}}} for job in training_jobs(runtime)]
    return {"manager": PATCH_MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def ensure_code(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """See to it that the ConfigMaps of a job that is about to be created are there. Raises ApiError."""
    for config_map in _config_maps(trainjob, code):
        try:
            cluster.create(config_map)
        except AlreadyExists:  # of an earlier try: its name has the digest, and it cannot be changed
            continue
        except Forbidden as error:
            raise Forbidden(
                f"code: the ConfigMaps that carry it cannot be created: {error.message}; grant create, get and patch on configmaps, "
                "or bring the code in an image"
            ) from error


def tie_code(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """Let the ConfigMaps go with their job. Again changes nothing. Raises ApiError."""
    reference = {key: trainjob[key] for key in ("apiVersion", "kind")} | {"name": name_of(trainjob), "uid": uid_of(trainjob)}
    for name in _names(name_of(trainjob), code):
        for _ in range(_MOST_TRIES):
            config_map = cluster.get(CONFIG_MAP, name, namespace_of(trainjob))
            if owners_of(config_map):
                break
            version = config_map["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "ownerReferences": [reference]}}
            try:
                cluster.patch(CONFIG_MAP, name, patch, namespace_of(trainjob))
            except Conflict:
                continue
            break


def _names(trainjob: str, code: PackedCode) -> list[str]:
    return [f"{trainjob}-code-{code.digest[:8]}-{number}" for number in range(len(code.parts))]


def _config_maps(trainjob: Obj, code: PackedCode) -> Iterator[Obj]:
    kept = (names.MANAGED_BY_LABEL, names.RUN_LABEL, names.STEP_LABEL)
    labels = {key: value for key, value in labels_of(trainjob).items() if key in kept}
    for number, name in enumerate(_names(name_of(trainjob), code)):
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace_of(trainjob), "labels": labels},
            "immutable": True,
            "binaryData": {f"part-{number:03d}": base64.b64encode(code.parts[number]).decode()},
        }
