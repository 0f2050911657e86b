"""A pod that is deleted without a grace period is gone before its containers: what is said of those that still run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.waiting import eventually

from trainwright.controlplane.node.agent import killings
from trainwright.controlplane.node.container import run_of, stop_runs
from trainwright.controlplane.node.lifecycle.events import PodEvent


@pytest.mark.medium
def test_stop_events_name_running_containers(tmp_path: Path) -> None:
    pod = {"spec": {"initContainers": [{"name": "done"}], "containers": [{"name": "main"}, {"name": "never"}]}}
    done, main = run_of("done", 0, tmp_path), run_of("main", 0, tmp_path)
    done.start(["true"], {"PATH": os.environ["PATH"]}, tmp_path)
    main.start(["sleep", "600"], {"PATH": os.environ["PATH"]}, tmp_path)
    try:
        eventually(done.termination, 20)
        eventually(main.started_at, 20)
        expected = [PodEvent("Normal", "Killing", "Stopping container main", "spec.containers{main}")]
        assert list(killings(pod, tmp_path)) == expected
    finally:
        stop_runs([main], 0)
    assert list(killings(pod, tmp_path)) == []
