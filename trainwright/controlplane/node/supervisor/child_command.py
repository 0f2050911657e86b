"""The command line of a process that is started beside those of a container: an exec session, an exec probe, a hook."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CHILD = Path(__file__).with_name("exec_child.py")


@dataclass(frozen=True)
class ChildCommand:
    """What subprocess.Popen needs."""

    argv: list[str]
    env: dict[str, str]
    pass_fds: tuple[int, ...] = ()


@contextmanager
def child_command(
    argv: list[str], env: dict[str, str], cwd: Path, *, tty: bool, isolated_run: Path | None
) -> Iterator[ChildCommand]:
    """Give the command that runs `argv` beside a container's processes, to be started before the end of the context.

    Args:
        argv: The command.
        env: Its variables.
        cwd: Its working directory, where the container is not isolated.
        tty: Whether its standard input is a terminal.
        isolated_run: The folder of the container's run, whose namespaces the command enters; None without isolation.

    Raises OSError.
    """
    if isolated_run is None:
        yield ChildCommand([sys.executable, "-S", "-E", "-P", str(_CHILD), str(cwd), str(int(tty)), *argv], env)
        return
    inside = command_inside(isolated_run, argv, env, has_terminal=tty)
    try:
        yield ChildCommand(inside.argv, {"PATH": os.environ.get("PATH", os.defpath)}, (inside.env_fd,))
    finally:
        os.close(inside.env_fd)


def signal_child(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process group of a child command, which may outlive its leader.

    In an isolated container the command has a group of its own, to which the child passes on all signals but SIGKILL.
    """
    groups = [*(_children(pid) if number == signal.SIGKILL else ()), pid]
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    except OSError:  # it has ended, or this is not Linux
        return []


def kill_processes_with(variable: str) -> None:
    """Kill processes with `NAME=VALUE` in their environment. Linux only."""
    marker = variable.encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or is of another user
            continue
        if marker in environment:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


@dataclass(frozen=True)
class ExecCommand:
    """Start `argv` as a session leader with `pass_fds=(env_fd,)` and an environment of its own, and close `env_fd` then."""

    argv: list[str]
    env_fd: int


def command_inside(run: Path, argv: list[str], env: dict[str, str], cwd: str = "", *, has_terminal: bool = False) -> ExecCommand:
    """Return the command that runs `argv` inside the isolated container whose run's folder is `run`.

    `cwd` is a path of the container; empty for its working directory. With `has_terminal`, standard input becomes the controlling
    terminal. The helper passes on signals, and exits as the command does. Raises OSError.
    """
    env_fd = os.memfd_create("environment", os.MFD_CLOEXEC)
    with open(env_fd, "w", encoding="utf-8", closefd=False) as file:
        json.dump(env, file)
    os.lseek(env_fd, 0, os.SEEK_SET)
    options = ["--enter", str(run), str(env_fd), cwd, str(int(has_terminal))]
    return ExecCommand([sys.executable, "-S", "-E", "-P", str(_CHILD), *options, *argv], env_fd)
