"""Trains a small network with MLX on every rank of an MPI job, each with its part of the data, and averages gradients.

Usage: mpirun --hostfile FILE python3 mlx_data_parallel.py [mpi [SCALE of the targets]], or
python3 mlx_data_parallel.py ring [HOSTFILE], which starts mpirun itself: MLX's ring reads the address of every rank from a file, which
is made from the pods' addresses. Prints step=N loss=X.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

STEPS, ROWS, FEATURES = 60, 256, 16
RING_PORT = 29400  # on the pod's own address, with one for each rank of the pod
HOSTS = "RING_HOSTS"


def start_ring(hostfile: str) -> None:
    """Replace this process by mpirun, which starts it again for each rank with all addresses."""
    hosts = []
    with open(hostfile, encoding="utf-8") as file:
        for line in file:
            name, *settings = line.split()
            slots = int(next(word for word in settings if word.startswith("slots=")).removeprefix("slots="))
            hosts += [[f"{socket.gethostbyname(name)}:{RING_PORT + slot}"] for slot in range(slots)]
    started = [sys.executable, os.path.abspath(__file__), "ring"]
    command = ["mpirun", "--hostfile", hostfile, "-x", f"{HOSTS}={json.dumps(hosts)}", *started]
    os.execvp(command[0], command)  # noqa: S606  # so that signals reach mpirun


def join(backend: str) -> mx.distributed.Group:
    if backend == "ring":
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(os.environ[HOSTS])
        os.environ["MLX_HOSTFILE"], os.environ["MLX_RANK"] = file.name, os.environ["OMPI_COMM_WORLD_RANK"]
    return mx.distributed.init(strict=True, backend=backend)


def train(group: mx.distributed.Group, scale: float) -> None:
    mx.random.seed(0)
    truth = mx.random.normal((FEATURES, 1))
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
    mx.eval(model.parameters(), truth)
    mx.random.seed(1 + group.rank())
    inputs = mx.random.normal((ROWS, FEATURES))
    targets = scale * mx.sin(inputs @ truth)
    loss_and_gradients = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
    optimizer = optim.Adam(learning_rate=2e-2)
    for step in range(1, STEPS + 1):
        loss, gradients = loss_and_gradients(inputs, targets)
        optimizer.update(model, nn.average_gradients(gradients, group))
        loss = mx.distributed.all_sum(loss, group=group) / group.size()
        mx.eval(model.parameters(), optimizer.state, loss)
        if group.rank() == 0 and (step == 1 or step % 10 == 0):
            print(f"step={step} loss={loss.item():.6f}", flush=True)
    total = sum(leaf.sum().item() for _, leaf in nn.utils.tree_flatten(model.parameters()))
    print(f"rank={group.rank()} size={group.size()} host={socket.gethostname()} parameters={total:.6f}", flush=True)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "mpi"
    if chosen == "ring" and HOSTS not in os.environ:
        start_ring(sys.argv[2] if len(sys.argv) > 2 else "/etc/mpi/hostfile")
    train(join(chosen), float(sys.argv[2]) if chosen == "mpi" and len(sys.argv) > 2 else 1.0)
