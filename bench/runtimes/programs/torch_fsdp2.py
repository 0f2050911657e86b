"""Sharded training with FSDP2 and a distributed checkpoint, which another number of processes resumes from.

Usage: torch_fsdp2.py FOLDER STEPS. Resumes from the checkpoint in the folder, if it has one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
kind = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if kind == "cuda" else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
if kind == "cuda":
    torch.cuda.set_device(rank % torch.cuda.device_count())
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).to(kind)
for layer in model:
    fully_shard(layer, mesh=init_device_mesh(kind, (world,)))
fully_shard(model, mesh=init_device_mesh(kind, (world,)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
first = 0
if (folder / ".metadata").exists():
    weights, moments = get_state_dict(model, optimizer)
    saved = {"model": weights, "optimizer": moments, "step": torch.tensor(0)}
    dcp.load(saved, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
    first = int(saved["step"].item()) + 1
    print(f"resumed_from={first - 1}", flush=True)
rows = torch.randn(128, 32, generator=torch.Generator().manual_seed(3)).to(kind)
goal = torch.tanh(rows.sum(dim=1, keepdim=True) / 4)
own = slice(rank * len(rows) // world, (rank + 1) * len(rows) // world)
for number in range(first, steps):
    loss = torch.nn.functional.mse_loss(model(rows[own]), goal[own])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    print(f"step={number} loss={mean.item() / world:.6f}", flush=True)
weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": moments, "step": torch.tensor(steps - 1)}, checkpoint_id=folder)
print(f"world={world}", flush=True)
# The group is not destroyed: with torch 2.13 and gloo that can deadlock just after a collective.
