"""Ends a step of Kubeflow Pipelines with one sentence that says why it failed, where its user looks: on the run's page and in its log.

The launcher replaces every exit code by 1, and the kubelet shows what is written to the termination log as the message of the pod.
After a termination nobody reads the standard streams any more. A step that finds this out without a signal ends too, since its
launcher is gone; the wait that is ended so stops its job.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from pydantic import ValidationError

from trainwright.api.errors import ApiError
from trainwright.api.termination_log import write_termination_message
from trainwright.checkpoints.errors import CheckpointError
from trainwright.cluster import NoCluster
from trainwright.initializers.errors import InitializerError
from trainwright.jobs.credentials.credential_patterns import masked
from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobError
from trainwright.jobs.diagnosis.exit_codes import exit_code_of
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.steps.signalled_step import killed_on_sigterm, wait_to_be_killed
from trainwright.storage.errors import StorageError
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


class LauncherGone(TrainJobError):
    """The launcher of this step has ended, and with it whoever waits for the step."""

    retryable = True


def write_line(text: str) -> None:
    """Write a line to the step's log. Raises LauncherGone the first time that nobody reads it."""
    if not _write(text, sys.stdout):
        raise LauncherGone("the launcher of this step has ended: nobody reads its log")


def _write(text: str, stream: TextIO) -> bool:
    """Write a line without credentials; returns whether somebody reads it. What is written after that goes nowhere."""
    try:
        print(masked(text), file=stream, flush=True)
    except BrokenPipeError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
        return False
    return True
