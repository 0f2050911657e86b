"""Ends a step of Kubeflow Pipelines with one sentence that says why it failed, where its user looks: on the run's page and in its
log.

The launcher replaces every exit code by 1, and the kubelet shows as the message of the pod the text in the termination log. After a
termination nobody reads the standard streams any more. A step that finds this out without a signal ends too, since its launcher is
gone; the wait that is ended so stops its job.

A step that has got SIGTERM ends on a server only when its container is killed. One that ends itself with 143 is seen as failed if
Argo reads its status before the deletion of its pod, and is not tried again. One that is killed is always seen as `pod deleted`,
which Argo tries again as it is installed. What the step has to do it does before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

from pydantic import ValidationError

from trainwright.api.errors import ApiError
from trainwright.api.termination_log import write_termination_message
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.registries.registration import MissingExtra
from trainwright.cluster import NoCluster
from trainwright.initializers.errors import InitializerError
from trainwright.jobs.credentials.credential_patterns import masked
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobError
from trainwright.jobs.diagnosis.exit_codes import exit_code_of, is_permanent
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.storage.errors import BadUri, NotPermitted, StorageError
from trainwright.storage.objects.connection import waiting_as_a_step
from trainwright.tools.errors import ToolError
from trainwright.workspace.layout import WorkspaceError

EXPECTED = (
    ApiError,
    CheckpointError,
    InitializerError,
    NoCluster,
    StorageError,
    ToolError,
    TrainJobError,
    ValidationError,
    ValueError,
    WorkspaceError,
)
"""Errors whose message is the whole story; of others a traceback is printed as well."""
MAX_SECONDS = 600.0
"""Longer than any usual grace period: a step that is not killed after all ends."""
_EXIT_CODE = 128 + signal.SIGTERM


@contextlib.contextmanager
def explained_end() -> Iterator[None]:
    """End the step if the block raises: its message and notes go to the termination log and the log.

    On a server, a step that was signalled waits until it is killed. Raises SystemExit, or what is no expected error.
    """
    with killed_on_sigterm(), waiting_as_a_step():
        try:
            yield
        except EXPECTED as error:
            message = masked("\n".join([message_of(error), *getattr(error, "__notes__", ())]))
            write_termination_message(message)
            _write(message, sys.stderr)
            headline, *more = message.splitlines()
            if more:  # orchestrators, and people, look at the last line of a log
                _write(headline, sys.stderr)
            if isinstance(error, Cancelled):
                wait_to_be_killed()
            raise SystemExit(int(exit_code_of(error))) from None
        except Exception as error:
            write_termination_message(masked(f"{type(error).__name__}: {error}"))
            raise


def _write(text: str, stream: TextIO) -> bool:
    """Write a line without credentials; returns whether somebody reads it. What is written after that goes nowhere."""
    try:
        print(masked(text), file=stream, flush=True)
    except BrokenPipeError:  # nobody reads the stream any more, and Python would fail again when it flushes at exit
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
        return False
    return True


class LauncherGone(TrainJobError):
    """The launcher of this step has ended, and with it whoever waits for the step."""

    retryable = True


def write_line(text: str) -> None:
    """Write a line to the step's log. Raises LauncherGone the first time that nobody reads it."""
    if not _write(text, sys.stdout):
        raise LauncherGone("the launcher of this step has ended: nobody reads its log")


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
    if not is_on_server() or threading.current_thread() is not threading.main_thread():  # signals go to the main thread alone
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


class RemoteStepFailed(TrainJobError):
    """The step failed in its pod; the message is that of the error there."""


class RemoteStepInvalid(RemoteStepFailed, ValueError):
    """The step failed for a reason that every retry would meet."""


def description_of(error: Exception) -> dict[str, Any] | None:
    """Return an expected error as an object for the log; None for any other, whose traceback tells more."""
    if not isinstance(error, EXPECTED):  # a defect: its stack trace says more than a sentence
        return None
    # The errors of the input are added: what it lacks is missing in the next try, too.
    return {
        "kind": type(error).__name__,
        "message": message_of(error),
        "is_permanent": is_permanent(error)
        or isinstance(error, InitializerError | BadUri | MissingExtra | NotPermitted)
        or type(error) is CheckpointError,
    }


def error_of(description: dict[str, Any], where: str) -> RemoteStepFailed:
    """Return the error that `description_of` has described."""
    kind = RemoteStepInvalid if description.get("is_permanent") else RemoteStepFailed
    return kind(f"{description.get('message') or 'the step failed'} ({where})")
