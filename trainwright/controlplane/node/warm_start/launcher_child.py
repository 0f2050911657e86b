"""The launcher's start of its program (runtimes/launch.py): by a fork of the launcher's process, which has a single thread."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from trainwright.controlplane.node.warm_start.command_line import parse
from trainwright.controlplane.node.warm_start.programs import BecomeProgram

_PLAIN_OPTIONS = {"cwd", "env", "preexec_fn"}


class ForkingPopen(subprocess.Popen):  # type: ignore[type-arg]
    """Starts a command line of Python by a fork that raises BecomeProgram, and every other command as usual."""

    def __init__(self, args: list[str], **options: Any):
        env = options.get("env") or {}
        self._forks = set(options) == _PLAIN_OPTIONS and parse(args, env.get("PATH", os.defpath)) is not None
        super().__init__(args, **options)

    def _execute_child(self, args: list[str], executable: object, preexec: Any, close: object, fds: object, *more: Any) -> None:
        if not self._forks:
            super()._execute_child(args, executable, preexec, close, fds, *more)  # type: ignore[misc]
            return
        cwd, env = more[:2]
        pid = os.fork()
        if pid == 0:
            os.chdir(cwd)
            raise BecomeProgram(args, env, preexec)
        self.pid, self._child_created = pid, True
