"""Linear regression on the rows of a data cache, two epochs: each process has its part, and all of them have each row once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist

from trainwright.datacache.reader import CacheReader

BATCH, EPOCHS = 100, 2


def batches(reader: CacheReader) -> Iterator[tuple[list[int], torch.Tensor]]:
    """Yield the ids of rows, and their numbers, `y` last."""
    for chunk in reader.batches():
        columns = [np.array(chunk[name], dtype=np.float32) for name in ("x0", "x1", "x2", "x3", "y")]
        numbers = torch.from_numpy(np.stack(columns, axis=1))
        ids = chunk["id"].to_pylist()
        for start in range(0, len(ids), BATCH):
            yield ids[start : start + BATCH], numbers[start : start + BATCH]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
reader = CacheReader()
torch.manual_seed(7)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
step, parts = 0, []
for epoch in range(EPOCHS):
    mine: list[int] = []
    for ids, numbers in batches(reader):
        loss = torch.nn.functional.mse_loss(model(numbers[:, :4]), numbers[:, 4:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(f"step={step} loss={mean.item() / world:.6f}", flush=True)
        mine, step = mine + ids, step + 1
    everyone: list[list[int]] = [[] for _ in range(world)]
    dist.all_gather_object(everyone, mine)
    read = sorted(number for part in everyone for number in part)
    if read != list(range(len(read))) or mine != (parts or [mine])[0]:
        raise SystemExit(f"epoch {epoch}: rows are missing, were read twice, or differ from those of the first epoch")
    parts.append(mine)
    print(f"epoch={epoch} rows={len(read)} mine={len(mine)}", flush=True)
print(f"world={world} rows={len(read)} mine={len(parts[-1])} epochs={len(parts)}", flush=True)
