"""Linear regression with Paddle's collective training: gradients are averaged over all processes."""

from __future__ import annotations

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
paddle.seed(7)
rows = paddle.randn([64 * world, 16])[rank::world]
goal = rows.sum(axis=1, keepdim=True)
model = paddle.DataParallel(paddle.nn.Linear(16, 1))
optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=model.parameters())
for number in range(40):
    loss = paddle.nn.functional.mse_loss(model(rows), goal)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    print(f"step={number} loss={float(loss):.6f}", flush=True)
print(f"world={world}", flush=True)
