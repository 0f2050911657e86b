"""Mounts volumes of a request in the training containers. Pure.

A container patch can have only one mount of each volume, so further mounts of a volume have patches of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.manifest.resolved_request import training_jobs
from trainwright.jobs.manifest.runtime_patch import runtime_patch
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import claim_of_volume, is_claim_of

PATCH_MANAGER = "trainwright.dev/volumes"


def volume_patches(request: TrainRequest, runtime: Obj) -> Iterator[Obj]:
    """Yield the patches that add the request's volumes to the pods of the training steps, and mount them in their containers."""
    workspace = request.workspace
    renamed = {
        each["name"]: names.INITIALIZER_VOLUME
        for each in request.placement.volumes
        if is_claim_of(workspace, claim_of_volume(each))
    }
    volumes = [volume for volume in request.placement.volumes if volume["name"] not in renamed]
    rounds: list[dict[str, Obj]] = []
    for mount in request.placement.volume_mounts:
        mount = {**mount, "name": renamed.get(mount["name"], mount["name"])}
        free = next((mounts for mounts in rounds if mount["name"] not in mounts), None)
        if free is None:
            rounds.append(free := {})
        free[mount["name"]] = mount
    for number, mounts in enumerate(rounds or ([{}] if volumes else [])):
        pod: Obj = {"containers": [{"name": names.NODE, "volumeMounts": list(mounts.values())}]} if mounts else {}
        if not number and volumes:
            pod["volumes"] = volumes
        manager = f"{PATCH_MANAGER}-{number + 1}" if number else PATCH_MANAGER
        yield runtime_patch(manager, {job["name"]: pod for job in training_jobs(runtime)})
