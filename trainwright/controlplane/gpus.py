"""The NVIDIA GPUs of this machine."""

from __future__ import annotations

import logging
import shutil
import subprocess

log = logging.getLogger(__name__)


def gpu_count() -> int:
    """Return the number of NVIDIA GPUs that nvidia-smi lists; 0 without a driver."""
    if shutil.which("nvidia-smi") is None:
        return 0
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        log.warning("nvidia-smi timed out; this node has no GPU capacity")
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
