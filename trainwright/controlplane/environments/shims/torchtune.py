"""Shims for torchtune 0.6 (tried: 0.6.1), which no newer version replaces: its recipes on a machine without a GPU.

1. Recipes for several processes ask for statistics of the GPU's memory and empty its cache, which raises on a CPU.
2. Those for LoRA and DPO name NCCL as backend, which torch's CPU build does not have.
3. All configurations say `device: cuda`, so that the stock command of a runtime would not run.

With a GPU the shims do nothing.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

VERSIONS = ("0.6", "0.7")
_NO_STATISTICS = {"peak_memory_active": 0.0, "peak_memory_alloc": 0.0, "peak_memory_reserved": 0.0}


def measure_no_gpu(module: Any) -> None:
    """In `torchtune.training.memory`: statistics of a CPU are zeros, and it has no cache."""
    statistics, clean_up = module.get_memory_stats, module.cleanup_before_training

    @functools.wraps(statistics)
    def get_memory_stats(device: Any, reset_stats: bool = True) -> Any:
        return dict(_NO_STATISTICS) if device.type == "cpu" else statistics(device, reset_stats)

    @functools.wraps(clean_up)
    def cleanup_before_training() -> None:
        gc.collect()
        if module.torch.cuda.is_available():
            clean_up()

    module.get_memory_stats, module.cleanup_before_training = get_memory_stats, cleanup_before_training


def use_gloo(module: Any) -> None:
    """In `torch.distributed.distributed_c10d`: without a GPU, `cuda:nccl,cpu:gloo` is gloo. Recipes take it from there."""
    original = module.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *arguments: Any, **more: Any) -> Any:
        is_for_gpus = isinstance(backend, str) and "nccl" in backend
        return original("gloo" if is_for_gpus and not module.torch.cuda.is_available() else backend, *arguments, **more)

    module.init_process_group = init_process_group


def train_on_the_cpu(module: Any) -> None:
    """In `torchtune.utils._device`: without a GPU, `cuda` is the CPU."""
    original = module.get_device

    @functools.wraps(original)
    def get_device(device: Any = None) -> Any:
        if device is not None and str(device).startswith("cuda") and not module.torch.cuda.is_available():
            print("no GPU: trains on the CPU", file=sys.stderr)
            device = "cpu"
        return original(device)

    module.get_device = get_device
