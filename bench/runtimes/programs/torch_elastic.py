"""Elastic training that loses a node and regains it: torchrun restarts the workers on the remaining nodes, from the last step.

Usage: torch_elastic.py FOLDER STEPS. The second node ends itself once, and its Job starts it again.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
world, node = dist.get_world_size(), int(os.environ["JOB_COMPLETION_INDEX"])
state_file, lost = folder / "state.pt", folder / "node-1-was-lost"
torch.manual_seed(7)
model = torch.nn.Linear(16, 1)
number = 0
if state_file.exists():
    state = torch.load(state_file, weights_only=True)
    model.load_state_dict(state["model"])
    number = state["step"] + 1
print(f"world={world} from={number}", flush=True)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
rows = torch.randn(64, 16, generator=torch.Generator().manual_seed(3))
goal = rows.sum(dim=1, keepdim=True)
while number < steps:
    loss = torch.nn.functional.mse_loss(model(rows), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step={number} loss={loss.item():.6f}", flush=True)
    if dist.get_rank() == 0:
        temporary = state_file.with_suffix(".new")
        torch.save({"model": model.module.state_dict(), "step": number}, temporary)
        temporary.rename(state_file)
    if node == 1 and number == 5 and not lost.exists():
        lost.touch()
        os.kill(os.getppid(), signal.SIGKILL)  # the agent of this node, as by the loss of the node
        os.kill(os.getpid(), signal.SIGKILL)
    number += 1
    time.sleep(0.2)
dist.barrier()
# The group is not destroyed: with torch 2.13 and gloo that can deadlock just after a collective.
