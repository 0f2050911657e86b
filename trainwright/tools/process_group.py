"""Runs a program in a session of its own: on a timeout, an interrupt or a termination, everything that it started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

GRACE_SECONDS = 10.0
_READER_SECONDS = 5.0
_MAX_LINE = 64 * 1024
_LOOK_SECONDS = 0.2


def run_in_group(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float | None,
    on_line: Callable[[str], None],
    grace_seconds: float = GRACE_SECONDS,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
    stop: threading.Event | None = None,
) -> int:
    """Run a command to its end and return its exit code, negative for a signal. What is left of its group is killed.

    Args:
        command: The program and its arguments.
        environment: All its variables.
        timeout_seconds: After so many seconds the group is ended; None has no limit.
        on_line: Called with each line of output, in another thread.
        grace_seconds: How long the group may take to end by itself after SIGTERM.
        cwd: Its working folder.
        stdin: DEVNULL, or PIPE for one that closes when this process has ended, even if it was killed.
        pass_fds: Descriptors that the program has too.
        umask: For the files that it makes; -1 for that of this process.
        stop: When it is set, the group is killed; then there is no limit of time.

    Raises TimeoutError, OSError if it cannot be started. A SIGTERM that nobody handles ends the group, then raises SystemExit.
    """
    with _termination_raises():
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=cwd,
            start_new_session=True,
            pass_fds=pass_fds,
            umask=umask,
        )
        try:
            assert process.stdout is not None
            reader = threading.Thread(target=_forward, args=(process.stdout, on_line), name="program-output", daemon=True)
            reader.start()
            while stop is not None and process.poll() is None:
                if stop.wait(_LOOK_SECONDS):
                    process.kill()
            return process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            _end(process, grace_seconds)
            raise TimeoutError(f"did not end within {timeout_seconds:g} s, and was stopped") from None
        except BaseException:  # an interrupt, or a termination that a handler has turned into an exception
            _end(process, grace_seconds)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError for a group of zombies
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join(_READER_SECONDS)
            if process.stdin is not None:
                process.stdin.close()


@contextlib.contextmanager
def _termination_raises() -> Iterator[None]:
    """Raise SystemExit on SIGTERM where it would end this process at once, leaving the group behind."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """Let the group end by itself for a while."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace_seconds)


def _forward(stream: IO[bytes], on_line: Callable[[str], None]) -> None:
    with stream:
        try:
            while line := stream.readline(_MAX_LINE):
                on_line(line.decode("utf-8", "replace").rstrip("\r\n"))
        finally:  # if nobody takes the lines any more, the program must not wait for it
            while stream.read(_MAX_LINE):
                pass
