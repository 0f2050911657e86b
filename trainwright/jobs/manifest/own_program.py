"""What a runtime runs by itself, which a builtin trainer replaces or extends. Pure."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.objects import Obj
from trainwright.jobs.manifest.resolved_request import initializer_container, trainer_container
from trainwright.jobs.manifest.workspace_mounts import is_own_initializer, mounted_inputs
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.trainers.builtin_trainers import OwnProgram


def own_program(request: TrainRequest, runtime: Obj) -> OwnProgram:
    """Return the command of the runtime's training container, and how its dataset is prepared."""
    initializer = initializer_container(runtime, names.ANCESTOR_DATASET)
    is_prepared = "dataset" in mounted_inputs(request, runtime) or (initializer is not None and is_own_initializer(initializer))
    command = (trainer_container(runtime) or {}).get("command") or []
    return OwnProgram(tuple(command), prepares_rows=is_prepared, fetches_dataset=initializer is not None)
