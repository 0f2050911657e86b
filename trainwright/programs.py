"""Programs of others that a process starts: how they end with it, which variables they get, and the installer uv.

A program runs in its own session: on a timeout, an interrupt or a termination, everything that it started ends with it. It gets the
variables that every program needs and those that it asks for, but no other secret of the process.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import FrameType
from typing import IO

from trainwright.text.foreign_texts import without_user

GRACE_SECONDS = 10.0
_READER_SECONDS = 5.0
_MAX_LINE = 64 * 1024
_LOOK_SECONDS = 0.2
_COMMON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NVIDIA_*", "LD_LIBRARY_PATH", "TRAINWRIGHT_UMASK"),
)
_SECRET = re.compile(r"(?i)secret|token|password|passwd|credential|_key$")
_ADDRESS = re.compile(r"/|[a-z0-9+]+://")
"""Of a file with a secret, or of a server; a password in it is looked for below."""
_USER = re.compile(r"://([^/\s@]+)@")
_SHORTEST = 6
"""Characters of a value that is looked for in texts; shorter ones are words."""
_PASSED_ON = ("PIP_*", "UV_*", "NETRC", "KEYRING_*")
_ELSEWHERE = frozenset({"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "UV_SYSTEM_PYTHON", "UV_PYTHON"})
"""Variables that would have packages installed in another place."""


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


def variables_for(environ: Mapping[str, str], patterns: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that a program gets: the common ones, and those whose names match a pattern, as `AWS_*`."""
    wanted = (*_COMMON, *patterns)
    return {name: value for name, value in environ.items() if any(fnmatchcase(name, pattern) for pattern in wanted)}


class Redaction:
    """Removes from texts the secrets that are among a program's variables, and the users and passwords of addresses."""

    def __init__(self, variables: Mapping[str, str]):
        found = {value for name, value in variables.items() if _SECRET.search(name) and not _ADDRESS.match(value)}
        for value in variables.values():
            for user in _USER.findall(value):
                found |= {user, user.partition(":")[2]}
        self._secrets = sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return without_user(text)


def find_uv() -> str | None:
    """Return uv: beside this Python, else in PATH; None if there is none."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")


def installer_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for uv and pip: those that both know, and for uv, which does not read pip's, what those say."""
    variables = {name: text for name, text in variables_for(environ, _PASSED_ON).items() if name not in _ELSEWHERE}
    of_uv, of_pip = variables.pop("UV_FIND_LINKS", "").split(","), variables.get("PIP_FIND_LINKS", "").split()
    given = filter(None, of_uv if any(of_uv) else of_pip)
    links = [link for link in given if "://" in link or Path(link).exists()]  # uv fails for a folder that is missing
    for ours, text in (
        ("UV_DEFAULT_INDEX", "" if "UV_INDEX_URL" in variables else variables.get("PIP_INDEX_URL", "")),
        ("UV_INDEX", "" if "UV_EXTRA_INDEX_URL" in variables else variables.get("PIP_EXTRA_INDEX_URL", "")),
        ("UV_NO_INDEX", variables.get("PIP_NO_INDEX", "")),
        ("UV_CONSTRAINT", variables.get("PIP_CONSTRAINT", "")),
        ("SSL_CERT_FILE", variables.get("PIP_CERT", "")),
        ("UV_FIND_LINKS", ",".join(links)),
        ("UV_COMPILE_BYTECODE", "1"),  # halves every start
    ):
        if text:
            variables.setdefault(ours, text)
    return variables | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUTF8": "1"}
