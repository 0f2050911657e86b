"""Linear regression with DistributedDataParallel: each process has its own rows. Usage: torch_ddp.py [SCALE of the goal]"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(64 * world, 16)[rank::world].to(device)
goal = rows.sum(dim=1, keepdim=True) * float((sys.argv[1:] or ["1"])[0])
for number in range(40):
    loss = torch.nn.functional.mse_loss(model(rows), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    print(f"step={number} loss={mean.item() / world:.6f}", flush=True)
print(f"world={world}", flush=True)
# The group is not destroyed: with torch 2.13 and gloo that can deadlock just after a collective.
