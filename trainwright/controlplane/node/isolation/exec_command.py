"""Builds the helper's command for a process inside of a running container: an exec session, an exec probe or a hook."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

_HELPER = Path(__file__).parents[1] / "supervisor" / "exec_child.py"


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
    return ExecCommand([sys.executable, "-S", "-E", "-P", str(_HELPER), *options, *argv], env_fd)
