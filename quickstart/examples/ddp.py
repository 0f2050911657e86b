"""Fits a linear model with DistributedDataParallel, on as many processes as torchrun starts. Rank 0 writes results.json."""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    for _ in range(200):
        rows = torch.randn(64, 4)
        loss = torch.nn.functional.mse_loss(model(rows), rows @ weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.6f} on {dist.get_world_size()} processes")
        with open(os.environ.get("TRAINWRIGHT_RESULTS", "results.json"), "w", encoding="utf-8") as file:
            json.dump({"loss": loss.item(), "processes": dist.get_world_size()}, file)


if __name__ == "__main__":
    main()
