"""Lines that PyTorch and NCCL write when a part of a distributed program gives up, and what they are taken for."""

from __future__ import annotations

import pytest

from trainwright.jobs.logs.log_excerpt import patterns_in

LINES = [
    ("[rank1]:[E123 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(", "nccl-timeout"),
    ("torch.distributed.DistBackendError: NCCL error in: X.cpp:94, ncclRemoteError: A call failed", "nccl-error"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous-timeout"),
    ("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms", "rendezvous-timeout"),
    ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2", "rendezvous-timeout"),
    ("RuntimeError: DataLoader timed out after 30 seconds", "data-loader-timeout"),
    ("RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly", "data-loader-died"),
    (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out",
        "data-loader-shared-memory",
    ),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "gpu-out-of-memory"),
    ("OSError: [Errno 28] No space left on device", "disk-full"),
]


@pytest.mark.parametrize(("line", "name"), LINES)
def test_a_line_is_known(line: str, name: str) -> None:
    assert patterns_in(["step 1", line, line])[0].name == name
