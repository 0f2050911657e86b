"""Runs a program in the environment of its tool: a request goes in as JSON, a result comes out as JSON, through a private folder.

Processes that it has left behind in other process groups are found by a variable that all of them have inherited.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.programs import GRACE_SECONDS, Redaction, run_in_group, variables_for
from trainwright.storage.errors import StorageError
from trainwright.storage.locks import HeldLock
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import disk_errors
from trainwright.tools.errors import BadToolInput, ToolFailed, ToolTimeout, ToolUnavailable

PROGRAMS = Path(__file__).with_name("programs")
_LAUNCHER = PROGRAMS / "launch.py"
_REQUEST, _RESULT = "request.json", "result.json"
_FOLDER_VARIABLE = "TMPDIR"
"""Whatever the program leaves there goes with the folder, and its processes are known by it."""
_LAST_LINES = 20
_MAX_RESULT = 64 * 1024 * 1024
_PROC = Path("/proc")
_SECONDS = 5.0
_POLL = 0.05


def run_tool(
    program: str | Path,
    request: Mapping[str, Any],
    *,
    python: Path,
    timeout_seconds: float | None = None,
    on_line: Callable[[str], None] | None = None,
    variables: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    grace_seconds: float = GRACE_SECONDS,
    locks: Sequence[HeldLock] = (),
) -> dict[str, Any]:
    """Run a program and return its result.

    Args:
        program: Name of one in `trainwright/tools/programs`, or the path of another. Its function `main(request)` returns the result.
        request: What it is called with, as JSON.
        python: The Python of its environment, from `tool_environment`.
        timeout_seconds: After so many seconds it is ended with everything that it started; None has no limit.
        on_line: Called with each line of its output, without the secrets among its variables, in another thread.
        variables: Patterns of the variables of this process that it gets besides the common ones, as `AWS_*`.
        environment: Variables to set for it. An empty value is passed on as one.
        grace_seconds: How long it may take to end by itself.
        locks: What it holds as well: it ends a moment after a caller that is killed, and nobody may write beside it until then.

    Raises BadToolInput for what it refuses, ToolFailed with its last lines, ToolTimeout, ToolUnavailable, StorageError.
    """
    path = PROGRAMS / f"{program}.py" if isinstance(program, str) else program
    given = {**variables_for(os.environ, variables), "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", **(environment or {})}
    redact, last = Redaction(given), deque[str](maxlen=_LAST_LINES)

    def forward(line: str) -> None:
        line = redact(line)
        last.append(line)
        if on_line is not None:
            on_line(line)

    with disk_errors(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / _REQUEST).write_text(json.dumps(dict(request)), "utf-8")
        try:
            code = _run(path, folder, python, given, timeout_seconds, forward, grace_seconds, locks)
        finally:
            end_strays(_FOLDER_VARIABLE, str(folder))
        try:
            answer = json.loads(read_plain(folder / _RESULT, _MAX_RESULT, folder))
        except (OSError, ValueError, StorageError):  # it was killed, or ended before it wrote
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise ToolFailed(f"{path.stem} ended with {ended} and without a result", tuple(last)) from None
    if (error := answer.get("error")) is not None:
        message = redact(error["message"])
        if error["bad_input"]:
            raise BadToolInput(message)
        raise ToolFailed(f"{path.stem} failed: {message}", () if error["expected"] else tuple(last))
    result: dict[str, Any] = answer["result"]
    return result


def _run(
    path: Path,
    folder: Path,
    python: Path,
    environment: Mapping[str, str],
    timeout_seconds: float | None,
    on_line: Callable[[str], None],
    grace_seconds: float,
    locks: Sequence[HeldLock],
) -> int:
    try:
        return run_in_group(
            [str(python), "-P", "-u", str(_LAUNCHER), str(path), str(folder)],
            environment={**environment, _FOLDER_VARIABLE: str(folder)},
            timeout_seconds=timeout_seconds,
            on_line=on_line,
            grace_seconds=grace_seconds,
            cwd=folder,
            stdin=subprocess.PIPE,
            pass_fds=[lock.descriptor for lock in locks if lock.descriptor is not None],
        )
    except TimeoutError as error:
        raise ToolTimeout(f"{path.stem} {error}") from None
    except (FileNotFoundError, PermissionError) as error:
        raise ToolUnavailable(f"{python} cannot be started: {error.strerror}; remove its environment") from error


def end_strays(variable: str, value: str) -> None:
    """Kill the processes that were started with a variable, and wait until they have ended. Does nothing where there is no /proc."""
    deadline = time.monotonic() + _SECONDS
    while strays := _with_variable(f"{variable}={value}".encode()):
        for process in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # ended since, or of another user
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL)


def _with_variable(entry: bytes) -> list[int]:
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # of another user, or just ended; of one that has ended it is empty
            if int(folder.name) != os.getpid() and entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
