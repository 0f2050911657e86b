"""Ends a step of Kubeflow Pipelines on a server only when its container is killed, once it has got SIGTERM.

A step that ends itself with 143 is seen as failed if Argo reads its status before the deletion of its pod, and is not tried again. One
that is killed is always seen as `pod deleted`, which Argo tries again as it is installed. What the step has to do it does before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

MAX_SECONDS = 600.0
"""Longer than any usual grace period: a step that is not killed after all ends."""
_EXIT_CODE = 128 + signal.SIGTERM


def is_on_server() -> bool:
    """Whether this step is a pod of Kubeflow Pipelines, and not a process of a local run."""
    return bool(os.environ.get("KFP_POD_NAME"))


def wait_to_be_killed() -> None:
    """Sleep until the container is killed. Returns at once elsewhere, and after MAX_SECONDS."""
    if is_on_server():
        time.sleep(MAX_SECONDS)


@contextlib.contextmanager
def killed_on_sigterm() -> Iterator[None]:
    """In the block, SIGTERM stops the main thread until the container is killed. On a server, in the main thread only.

    A wait for a TrainJob has a handler of its own meanwhile, see `stop_on_signals`.
    """
    if not is_on_server() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop_here)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_here(_number: int, _frame: FrameType | None) -> None:
    wait_to_be_killed()
    os._exit(_EXIT_CODE)
