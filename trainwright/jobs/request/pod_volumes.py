"""Mounts volumes of a request in the training containers. Pure.

A container patch can have only one mount of each volume, so further mounts of a volume have patches of their own. The claim of the
workspace is mounted through its own volume: a pod with two volumes of one claim never starts on Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.training_steps import training_jobs

PATCH_MANAGER = "trainwright.dev/volumes"


def volume_patches(request: TrainRequest, runtime: Obj) -> Iterator[Obj]:
    """Yield the patches that add the request's volumes to the pods of the training steps, and mount them in their containers."""
    claim = request.workspace_volume.claim if request.workspace_volume is not None else ""
    renamed = {volume["name"]: names.INITIALIZER_VOLUME for volume in request.volumes if claim and _claim_of(volume) == claim}
    volumes = [volume for volume in request.volumes if volume["name"] not in renamed]
    rounds: list[dict[str, Obj]] = []
    for mount in request.volume_mounts:
        mount = {**mount, "name": renamed.get(mount["name"], mount["name"])}
        free = next((mounts for mounts in rounds if mount["name"] not in mounts), None)
        if free is None:
            rounds.append(free := {})
        free[mount["name"]] = mount
    for number, mounts in enumerate(rounds or ([{}] if volumes else [])):
        pod: Obj = {"containers": [{"name": names.NODE, "volumeMounts": list(mounts.values())}]} if mounts else {}
        if not number and volumes:
            pod["volumes"] = volumes
        jobs = [{"name": job["name"], "template": {"spec": {"template": {"spec": pod}}}} for job in training_jobs(runtime)]
        manager = f"{PATCH_MANAGER}-{number + 1}" if number else PATCH_MANAGER
        yield {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}


def _claim_of(volume: Obj) -> str:
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")
