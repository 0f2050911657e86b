"""Finds and executes a container's command, with the error messages that users know from container runtimes.

Standard library only, because a container's supervisor loads this file.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal

CANNOT_EXECUTE = 255
"""The exit code of runc for a file that is found but that the kernel refuses to execute."""


class CommandError(Exception):
    """The command cannot be started. The message is that of Go's exec.LookPath, which runc prints."""

    def __init__(self, message: str, *, is_missing: bool = False):
        super().__init__(message)
        self.is_missing = is_missing


def find_command(name: str, path: str) -> str:
    """Return the file of a command, searched for in `path` unless its name has a slash. Raises CommandError."""
    if "/" in name:
        if reason := _obstacle(name):
            raise CommandError(f"exec: {json.dumps(name, ensure_ascii=False)}: {reason}", is_missing=reason.startswith("stat "))
        return name
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if name and not _obstacle(candidate):
            return candidate
    raise CommandError(f"exec: {json.dumps(name, ensure_ascii=False)}: executable file not found in $PATH", is_missing=True)


def change_folder(cwd: str) -> None:
    """Enter the working directory. Raises CommandError."""
    try:
        os.chdir(cwd)
    except OSError as error:
        raise CommandError(
            f"chdir to cwd ({json.dumps(cwd, ensure_ascii=False)}) set in config.json failed: {_text(error)}"
        ) from error


def reset_process() -> None:
    """Give every signal its default action, and let all arrive, as in the process that a container runtime starts.

    This process may have inherited others: a shell without job control starts what runs in its background with SIGQUIT ignored.
    It has inherited the control plane's limit of memory, too: what the operator has set is the hard one.
    """
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def execute(file: str, argv: list[str], env: dict[str, str], failure: int = CANNOT_EXECUTE) -> None:
    """Replace this process by the command. What the kernel refuses is printed on standard error, with exit code `failure`."""
    try:
        os.execve(file, argv, env)  # noqa: S606  (an argument list, no shell)
    except OSError as error:
        os.write(2, f"exec {file}: {_text(error)}\n".encode())
    os._exit(failure)


def _obstacle(file: str) -> str:
    try:
        os.stat(file)
    except OSError as error:
        return f"stat {file}: {_text(error)}"
    if os.path.isdir(file):
        return _text(OSError(errno.EISDIR, ""))
    return "" if os.access(file, os.X_OK, effective_ids=True) else _text(OSError(errno.EACCES, ""))


def _text(error: OSError) -> str:
    """Return the text of an error in Go's spelling, which is the C library's in lower case."""
    text = os.strerror(error.errno or errno.EIO)
    return text[:1].lower() + text[1:]
