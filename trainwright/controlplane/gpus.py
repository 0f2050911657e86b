"""The NVIDIA GPUs of this machine."""

from __future__ import annotations

import logging
import shutil
import subprocess

log = logging.getLogger(__name__)


def gpu_count() -> int:
    """Return the number of NVIDIA GPUs that nvidia-smi lists; 0 without a driver."""
    return sum(line.startswith("GPU ") for line in _listed("-L"))


def gpu_mebibytes() -> int:
    """Return the memory of the smallest GPU in MiB; 0 without a driver."""
    sizes = [int(line) for line in _listed("--query-gpu=memory.total", "--format=csv,noheader,nounits") if line.strip().isdigit()]
    return min(sizes, default=0)


def _listed(*arguments: str) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        listed = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        log.warning("nvidia-smi timed out; this node has no GPU capacity")
        return []
    return listed.stdout.splitlines()
