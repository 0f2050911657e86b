"""Shims for DeepSpeed 0.16 to 0.19 (tried: 0.19.5), `deepspeed.comm`.

1. Its MPI discovery has the ranks of every job meet on port 29500 of the machine's first address, which is not the loopback
   interface. Two jobs on one machine collide. The node gives each job a port; this shim makes rank 0 listen there.
2. On a CPU, every rank builds `deepspeed_shm_comm` with a C++ compiler when it joins (75 s of CPU, 1.8 GB), and fails without one.
   The op only makes collectives of ranks in one pod faster. With a GPU, DeepSpeed does not build it, and this shim does nothing.
"""

from __future__ import annotations

import functools
import os
from typing import Any

VERSIONS = ("0.16", "0.20")
PORT = "TRAINWRIGHT_RENDEZVOUS_PORT"
"""The variable with the port that the node has allocated to the job."""
_FIXED = 29500


def discover_port_of_job(module: Any) -> None:
    """In `deepspeed.comm.comm`: let `mpi_discovery` name the job's port, unless the program asks for another one."""
    original = module.mpi_discovery

    @functools.wraps(original)
    def mpi_discovery(distributed_port: int = _FIXED, verbose: bool = True) -> None:
        port = os.environ.get(PORT)
        if not port or int(distributed_port) != _FIXED:
            original(distributed_port=distributed_port, verbose=verbose)
            return
        original(distributed_port=int(port), verbose=verbose)
        os.environ["MASTER_ADDR"] = "127.0.0.1"  # all pods of the job are on this machine

    module.mpi_discovery = mpi_discovery


def leave_out_shared_memory_op(module: Any) -> None:
    """In `deepspeed.comm.torch`: build no `deepspeed_shm_comm` on a CPU."""
    original = module.build_shm_op

    @functools.wraps(original)
    def build_shm_op() -> Any:
        return None if module.get_accelerator().device_name() == "cpu" else original()

    module.build_shm_op = build_shm_op
