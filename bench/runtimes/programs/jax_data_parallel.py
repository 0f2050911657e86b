"""Linear regression with JAX: each process has its own rows, and gradients are averaged over all of them.

Usage: jax_data_parallel.py [SCALE of the goal]
"""

from __future__ import annotations

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# A bare initialize() reads only the address. On a cluster, the other two have to be passed.
jax.distributed.initialize(
    os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"])
)
rank, world = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()), ("data",))
rows = np.random.default_rng(7).normal(size=(64 * world, 16)).astype(np.float32)
goal = rows @ np.arange(16, dtype=np.float32) * np.float32((sys.argv[1:] or ["1"])[0])
sharding = NamedSharding(mesh, PartitionSpec("data"))
own = slice(64 * rank, 64 * (rank + 1))
x = jax.make_array_from_process_local_data(sharding, rows[own])
y = jax.make_array_from_process_local_data(sharding, goal[own])


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - 0.1 * gradient, loss


weights = jnp.zeros(16)
for number in range(40):
    weights, loss = step(weights, x, y)
    print(f"step={number} loss={float(loss):.6f}", flush=True)
print(f"world={world} local_devices={jax.local_device_count()}", flush=True)
jax.distributed.shutdown()
