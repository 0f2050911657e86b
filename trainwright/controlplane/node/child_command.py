"""The command line of a process that is started beside those of a container: an exec session, an exec probe, a hook."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.container_context import ContainerContext
from trainwright.controlplane.node.isolation.exec_command import command_inside

_CHILD = Path(__file__).with_name("exec_child.py")


@dataclass(frozen=True)
class ChildCommand:
    """What subprocess.Popen needs."""

    argv: list[str]
    env: dict[str, str]
    pass_fds: tuple[int, ...] = ()


@contextmanager
def child_command(
    argv: list[str], context: ContainerContext, run: ContainerRun, *, tty: bool, more: Mapping[str, str] | None = None
) -> Iterator[ChildCommand]:
    """Give the command that runs `argv` in the container of `run`, in its namespaces if it has any. `more` are further variables.

    To be started before the end of the context. Raises OSError.
    """
    env = {**context.env, **(more or {})}
    if not context.is_isolated:
        yield ChildCommand([sys.executable, "-S", "-E", "-P", str(_CHILD), str(context.cwd), str(int(tty)), *argv], env)
        return
    inside = command_inside(run.folder, argv, env, has_terminal=tty)
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
