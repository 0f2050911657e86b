"""Packed code on its way to the nodes: ConfigMaps that belong to a TrainJob, mounted by every training container.

They are made before the job, which would wait for them, and tied to it afterwards, so that they go with it; a try that is killed
in between leaves ConfigMaps that the next one finds by their names.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from contextlib import suppress

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainwright.api.kinds import CONFIG_MAP
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.code_package import PackedCode
from trainwright.jobs.training_steps import training_jobs

PATCH_MANAGER = "trainwright.dev/code"
MOUNT = "/trainwright/code"
_VOLUME = "trainwright-code"
_MOST_TRIES = 10
log = logging.getLogger(__name__)


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
        except AlreadyExists:  # of an earlier try, or of a job of this name that was deleted: `tie_code` sees to it
            continue
        except Forbidden as error:
            raise Forbidden(
                f"code: the ConfigMaps that carry it cannot be created: {error.message}; grant create, get and patch on configmaps, "
                "or bring the code in an image"
            ) from error


def tie_code(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """Let the ConfigMaps go with their job; one that went with an earlier job of this name is created again. Repeatable.

    Without permission they stay, with a warning. Raises other ApiErrors.
    """
    reference = {key: trainjob[key] for key in ("apiVersion", "kind")} | {"name": name_of(trainjob), "uid": uid_of(trainjob)}
    try:
        for config_map in _config_maps(trainjob, code):
            _tie(cluster, config_map, reference)
    except Forbidden as error:
        log.warning("code: its ConfigMaps stay when their job goes name=%s error=%s", name_of(trainjob), error.message)


def _tie(cluster: Cluster, wanted: Obj, reference: Obj) -> None:
    name, namespace = name_of(wanted), namespace_of(wanted)
    for _ in range(_MOST_TRIES):
        try:
            config_map = cluster.get(CONFIG_MAP, name, namespace)
            if [owner["uid"] for owner in owners_of(config_map)] == [reference["uid"]]:
                return
            version = config_map["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version, "ownerReferences": [reference]}}
            cluster.patch(CONFIG_MAP, name, patch, namespace)
        except NotFound:
            with suppress(AlreadyExists):
                cluster.create(wanted)
        except Conflict:
            continue
    raise Conflict(f"the ConfigMap {name!r} changed {_MOST_TRIES} times while it was being tied to its job")


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
