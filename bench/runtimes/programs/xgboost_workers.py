"""Gradient boosting on all nodes: rank 0 runs the tracker, each worker has its own rows, histograms are added up.

Usage: xgboost_workers.py [SCALE of the threshold]
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, world = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])
host, port = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=world, host_ip=socket.gethostbyname(host), port=port)
    tracker.start()
    threading.Thread(target=tracker.wait_for, daemon=True).start()
deadline = time.monotonic() + 60
while time.monotonic() < deadline:  # a worker that comes before the tracker waits longer each time
    try:
        socket.create_connection((host, port), 1).close()
        break
    except OSError:
        time.sleep(0.05)

generator = np.random.default_rng(rank)
rows = generator.normal(size=(5000, 10))
labels = (rows[:, 0] + rows[:, 1] ** 2 > float((sys.argv[1:] or ["1"])[0])).astype(int)
with collective.CommunicatorContext(dmlc_tracker_uri=host, dmlc_tracker_port=port, dmlc_task_id=str(rank)):
    data = xgboost.DMatrix(rows, labels)
    history: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        {"objective": "binary:logistic", "tree_method": "hist", "nthread": 1},
        data,
        num_boost_round=20,
        evals=[(data, "train")],
        evals_result=history,
        verbose_eval=False,
    )
    for number, loss in enumerate(history["train"]["logloss"]):
        print(f"step={number} loss={loss:.6f}", flush=True)
    print(f"world={collective.get_world_size()}", flush=True)
