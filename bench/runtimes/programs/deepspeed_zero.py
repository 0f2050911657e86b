"""Trains a small network with DeepSpeed's ZeRO on every rank of an MPI job; ranks are found as DeepSpeed does it under mpirun.

Usage: mpirun --hostfile FILE python3 deepspeed_zero.py STAGE. Prints step=N loss=X, and for each rank a digest of the parameters.
"""

from __future__ import annotations

import socket
import sys
import warnings

import deepspeed
import torch
from torch import nn

STEPS, ROWS, FEATURES = 40, 256, 16


def train(stage: int) -> None:
    warnings.simplefilter("ignore", FutureWarning)  # of torch, about DeepSpeed's calls, several for each step
    deepspeed.init_distributed()
    rank, size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    torch.manual_seed(0)
    truth = torch.randn(FEATURES, 1)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
    config = {
        "train_micro_batch_size_per_gpu": ROWS,
        "optimizer": {"type": "Adam", "params": {"lr": 2e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage},
        "wall_clock_breakdown": False,
    }
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    torch.manual_seed(1 + rank)
    inputs = torch.randn(ROWS, FEATURES, device=engine.device)
    targets = torch.sin(inputs @ truth.to(engine.device))
    for step in range(1, STEPS + 1):
        loss = nn.functional.mse_loss(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        deepspeed.comm.all_reduce(mean)
        if rank == 0 and (step == 1 or step % 10 == 0):
            print(f"step={step} loss={mean.item() / size:.6f}", flush=True)
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
        total = sum(parameter.sum().item() for parameter in model.parameters())
    print(f"rank={rank} size={size} host={socket.gethostname()} parameters={total:.6f}", flush=True)
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
