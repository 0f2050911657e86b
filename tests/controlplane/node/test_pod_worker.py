"""The worker of one pod: what may happen between its registration and its start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trainwright.controlplane.node.pod_worker import PodWorker


def test_a_node_may_stop_while_a_worker_is_about_to_start(tmp_path: Path) -> None:
    services: Any = SimpleNamespace(pods_folder=tmp_path)
    worker = PodWorker({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}}, services)
    worker.stop_watching()
    worker.join(5)
    worker.start()
    worker.join(5)
    assert not worker.is_alive()
    assert not worker.folder.exists()
