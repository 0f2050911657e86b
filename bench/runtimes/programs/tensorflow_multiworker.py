"""Linear regression with MultiWorkerMirroredStrategy, which finds its peers in TF_CONFIG."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
tf.random.set_seed(7)
world = strategy.extended._num_workers
rows = tf.random.stateless_normal((64, 16), seed=(1, 2))
goal = tf.reduce_sum(rows, axis=1, keepdims=True)
with strategy.scope():
    weights = tf.Variable(tf.zeros((16, 1)))


@tf.function
def step() -> tf.Tensor:
    def replica() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((rows @ weights - goal) ** 2)
        gradient = tape.gradient(loss, weights)
        weights.assign_sub(0.1 * tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(replica), axis=None)


for number in range(40):
    print(f"step={number} loss={float(step()):.6f}", flush=True)
print(f"world={world}", flush=True)
