"""A training program under torchrun, on CPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def torchrun(log: Path, ranks: int, *command: str, expected: int = 0) -> Iterator[None]:
    """Run a program with its arguments during the block, and wait for the exit code `expected`."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    with log.open("wb") as said:
        process = subprocess.Popen([*launch, *command], env=environment, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield
            assert process.wait(240) == expected, log.read_text("utf-8", "replace")[-4000:]
        finally:
            process.terminate()
            process.wait(30)
