"""Shims for JAX 0.7 to 0.10 (tried: 0.10.2), `jax.distributed`.

`initialize()` without arguments reads only the coordinator's address from the environment, and guesses the rest on clusters that it
knows. On Kubernetes it then asks the API server for its own Job, which no pod of a TrainJob may. Trainer's runtime sets
JAX_NUM_PROCESSES and JAX_PROCESS_ID too; this shim takes them where the program names none.
"""

from __future__ import annotations

import functools
import os
from typing import Any

VERSIONS = ("0.7", "0.11")


def initialize_from_the_runtime(module: Any) -> None:
    """In `jax._src.distributed`: arguments that are missing come from the variables of the runtime."""
    original = module.initialize

    @functools.wraps(original)
    def initialize(
        coordinator_address: Any = None, num_processes: Any = None, process_id: Any = None, *arguments: Any, **more: Any
    ) -> Any:
        names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
        given = (coordinator_address, num_processes, process_id)
        if (
            given == (None, None, None)
            and all(os.environ.get(name) for name in names)
            and not more.get("cluster_detection_method")
        ):
            given = (os.environ[names[0]], int(os.environ[names[1]]), int(os.environ[names[2]]))
        return original(*given, *arguments, **more)

    module.initialize = initialize
