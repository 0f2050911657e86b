"""The GPUs that a node offers, and how large they are, by what nvidia-smi says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from factories import cluster_in_memory

from trainwright.api import names
from trainwright.api.kinds import NODE
from trainwright.api.objects import labels_of
from trainwright.controlplane.gpus import gpu_count, gpu_mebibytes
from trainwright.controlplane.node.isolation.support import Support
from trainwright.controlplane.node.registration import NODE_NAME, register

TWO = """#!/bin/sh
case "$1" in
-L) echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'; echo 'GPU 1: NVIDIA A10 (UUID: GPU-2)';;
--query-gpu=memory.total) echo 81559; echo 23028;;
esac
"""
NO_DRIVER = '#!/bin/sh\necho "NVIDIA-SMI has failed because it couldn\'t communicate with the NVIDIA driver."\nexit 9\n'


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program = tmp_path / "nvidia-smi"
    program.touch(0o755)
    return program


def test_all_are_counted_and_the_smallest_decides_what_fits(nvidia_smi: Path) -> None:
    nvidia_smi.write_text(TWO)
    assert (gpu_count(), gpu_mebibytes()) == (2, 23028)


def test_without_a_driver_there_is_none(nvidia_smi: Path) -> None:
    nvidia_smi.write_text(NO_DRIVER)
    assert (gpu_count(), gpu_mebibytes()) == (0, 0)


def test_the_node_has_their_memory_as_a_label_until_they_are_gone(nvidia_smi: Path) -> None:
    with cluster_in_memory() as cluster:
        for program, memory, gpus in ((TWO, "23028", "2"), (NO_DRIVER, None, None)):
            nvidia_smi.write_text(program)
            register(cluster, nvidia_smi.parent, Support(available=False, reason="a test"))
            node = cluster.get(NODE, NODE_NAME)
            assert labels_of(node).get(names.GPU_MEMORY_LABEL) == memory
            assert node["status"]["allocatable"].get("nvidia.com/gpu") == gpus
