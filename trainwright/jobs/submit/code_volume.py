"""Stores packed code in ConfigMaps that every training container mounts and that the TrainJob owns.

They are created before the job, and get their owner reference after it exists, so that they are deleted with it. Their names are
deterministic: a retry after a crash in between finds them.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from functools import partial

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, Forbidden
from trainwright.api.kinds import CONFIG_MAP
from trainwright.api.objects import Obj, labels_of, name_of, namespace_of, owners_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.code.code_package import PackedCode
from trainwright.jobs.manifest.code_patch import config_map_names
from trainwright.jobs.submit.owner_references import set_owners, trainjob_reference

log = logging.getLogger(__name__)


def ensure_code(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """Create the ConfigMaps of a job that is about to be created, if they do not exist. Raises ApiError."""
    for config_map in code_config_maps(trainjob, code):
        try:
            cluster.create(config_map)
        except AlreadyExists:  # from an earlier try or a deleted job of this name; `set_code_owner` sets the owner
            continue
        except Forbidden as error:
            raise Forbidden(
                f"code: its ConfigMaps cannot be created: {error.message}; grant create, get and patch on configmaps, "
                "or include the code in an image"
            ) from error


def set_code_owner(cluster: Cluster, trainjob: Obj, code: PackedCode) -> None:
    """Make the job the owner of its ConfigMaps; recreates one that was deleted with an earlier job of this name. Idempotent.

    Without permission the ConfigMaps stay ownerless, with a warning. Raises other ApiErrors.
    """
    reference = trainjob_reference(trainjob)

    def owners(config_map: Obj) -> list[Obj] | None:
        return None if [owner["uid"] for owner in owners_of(config_map)] == [reference["uid"]] else [reference]

    try:
        for config_map in code_config_maps(trainjob, code):
            recreate = partial(cluster.create, config_map)
            set_owners(cluster, CONFIG_MAP, name_of(config_map), namespace_of(config_map), owners, recreate=recreate)
    except Forbidden as error:
        log.warning("event=code_owner_not_set name=%s error=%s", name_of(trainjob), error.message)


def code_config_maps(trainjob: Obj, code: PackedCode) -> Iterator[Obj]:
    """Yield the ConfigMaps with the code of a job, without an owner."""
    kept = (names.MANAGED_BY_LABEL, names.RUN_LABEL, names.STEP_LABEL)
    labels = {key: value for key, value in labels_of(trainjob).items() if key in kept}
    for number, name in enumerate(config_map_names(name_of(trainjob), code)):
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace_of(trainjob), "labels": labels},
            "immutable": True,
            "binaryData": {f"part-{number:03d}": base64.b64encode(code.parts[number]).decode()},
        }
