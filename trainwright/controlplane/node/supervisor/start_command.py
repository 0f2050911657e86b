"""What a process does around the start of a container's command: it takes a session keyring and a title, finds the command, executes
it.

Errors have the messages that users know from container runtimes. The session keyring of the login that started the cluster holds its
Kerberos tickets and the like. A forked supervisor is found by the folder of its container, a forked program by its command line.
Sources: keyctl_join_session_keyring(3), session-keyring(7), arg_start to env_end in proc(5). Standard library only, because a
container's supervisor loads this file.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys

CANNOT_EXECUTE = 255
"""The exit code of runc for a file that is found but that the kernel refuses to execute."""
_ARG_START, _ARG_END, _ENV_START, _ENV_END = 47, 48, 49, 50
"""The fields 48 to 51 of /proc/PID/stat."""
_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "ppc64": 271, "s390x": 280}
_KEYCTL_GENERIC = 219
"""Of asm-generic/unistd.h, which newer architectures have in common."""
_GET_KEYRING_ID, _JOIN_SESSION_KEYRING, _SESSION_KEYRING = 0, 1, -3
_libc = ctypes.CDLL(None, use_errno=True)


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


def _obstacle(file: str) -> str:
    try:
        os.stat(file)
    except OSError as error:
        return f"stat {file}: {_error_text(error)}"
    if os.path.isdir(file):
        return _error_text(OSError(errno.EISDIR, ""))
    return "" if os.access(file, os.X_OK, effective_ids=True) else _error_text(OSError(errno.EACCES, ""))


def _error_text(error: OSError) -> str:
    """Return the text of an error in Go's spelling, which is the C library's in lower case."""
    text = os.strerror(error.errno or errno.EIO)
    return text[:1].lower() + text[1:]


def change_folder(cwd: str) -> None:
    """Enter the working directory. Raises CommandError."""
    try:
        os.chdir(cwd)
    except OSError as error:
        raise CommandError(
            f"chdir to cwd ({json.dumps(cwd, ensure_ascii=False)}) set in config.json failed: {_error_text(error)}"
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
        os.write(2, f"exec {file}: {_error_text(error)}\n".encode())
    os._exit(failure)


def set_title(words: list[str]) -> None:
    """Replace the command line as far as there is room: as many bytes as this program was started with."""
    _fill(_ARG_START, _ARG_END, words)


def _fill(start_field: int, end_field: int, words: list[str]) -> None:
    with open("/proc/self/stat", "rb") as file:
        after_name = file.read().rpartition(b")")[2].split()
    start, end = (int(after_name[field - 2]) for field in (start_field, end_field))
    if not 0 < start < end:  # hidden from this process
        return
    room = end - start
    text = b"\0".join(word.encode("utf-8", "surrogateescape") for word in words)[: room - 1]
    ctypes.memmove(start, text.ljust(room, b"\0"), room)


def show_environment(env: dict[str, str]) -> None:
    """Replace the variables in /proc/PID/environ as far as there is room. The C library must not use the old ones any more."""
    _fill(_ENV_START, _ENV_END, [f"{name}={value}" for name, value in env.items()])


def join_new_session_keyring() -> None:
    """Replace this process's session keyring by a new, empty one, which its children inherit.

    Does nothing where no process can read a key: without keyrings in the kernel, or with a filter that refuses them, which children
    keep. Raises OSError: EDQUOT for a user with as many keys as `kernel.keys.maxkeys` allows.
    """
    if sys.platform != "linux":
        return
    number = _keyctl(_JOIN_SESSION_KEYRING, None)
    if number in (0, errno.ENOSYS) or (number == errno.EPERM and _keyctl(_GET_KEYRING_ID, _SESSION_KEYRING, 0) == errno.EPERM):
        return
    raise OSError(number, os.strerror(number), "join a new session keyring")


def _keyctl(operation: int, *arguments: int | None) -> int:
    """Return the number of the error, or 0."""
    words = [ctypes.c_long(argument or 0) for argument in (operation, *arguments)]
    call = _KEYCTL.get(os.uname().machine, _KEYCTL_GENERIC)
    return ctypes.get_errno() if _libc.syscall(ctypes.c_long(call), *words) < 0 else 0


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot. Raises FileNotFoundError, ProcessLookupError. Source: proc(5)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def boot_id() -> str:
    """Return the id of this boot of the machine; empty where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:  # not Linux
        return ""
