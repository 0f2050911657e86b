"""Decides which containers start warm, and keeps the parent that their processes are forked from."""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.node.environment import machine_variables
from trainwright.controlplane.node.isolation.visible import python_folders
from trainwright.controlplane.node.supervisor.spawner import FAILED
from trainwright.controlplane.node.supervisor.start_supervisor import ANSWER_SECONDS, SpawnerProcess, StartSupervisor
from trainwright.controlplane.node.warm_start.parent import READY, ROOM

SETTING = "TRAINWRIGHT_WARM_START"
REST_SECONDS = 15.0
"""Between the start of a container without a parent and the imports of the parent, which would delay the container's first step."""
_OWN_VARIABLES = ("HOME", "OMP_NUM_THREADS")
"""Those in which containers differ most often of the variables on which imported modules depend."""
_IMPORT_SECONDS = 20.0
"""Wait this long for a parent that was started with the node: its imports are shorter than those of a container without it."""
_ROOM = "-" * 65536
log = logging.getLogger(__name__)


def can_start_warm(argv: Sequence[str], plan: Obj | None, launcher: Callable[[], str] | None = None) -> bool:
    """Whether a container starts torchrun, itself or through the launcher, in the cluster's own environment.

    `plan` is that of its isolation; without one, each pod has another HOME, on which imported modules depend.
    """
    words = list(argv)
    is_program = words[0] in ("python", "python3") and words[1:2] == ["-c"] and "--" in words
    if is_program and launcher is not None and words[2] == launcher():
        words = words[words.index("--") + 1 :]
    if plan is None or words[:1] != ["torchrun"]:
        return False
    targets = [Path(mount["target"]) for mount in plan["mounts"]]
    return not any(each.is_relative_to(folder) or folder.is_relative_to(each) for each in targets for folder in _python_folders())


@functools.cache
def _python_folders() -> list[Path]:
    return [path for path in python_folders() if path.is_dir()]


class WarmParent:
    """Starts containers warm if a parent is ready for them; else as `plain` does, and prepares a parent. Thread-safe.

    If the setting has the form `NAME=VALUE NAME=VALUE ...`, `prepare_first` starts a parent for containers with these variables.
    """

    def __init__(
        self, plain: StartSupervisor, rest_seconds: float = REST_SECONDS, launcher: Callable[[], str] | None = None
    ) -> None:
        self._plain, self._rest_seconds, self._launcher = plain, rest_seconds, launcher
        self._lock = threading.RLock()
        self._parent: SpawnerProcess | None = None
        self._variables: dict[str, str] = {}  # those of _OWN_VARIABLES that the parent and the containers that it serves have
        self._can_serve = False
        setting = os.environ.get(SETTING, "")
        self._refused = sys.platform != "linux" or setting.lower() in ("off", "0", "false", "no")
        self._first = dict(word.split("=", 1) for word in setting.split() if "=" in word)

    def starter(self, argv: Sequence[str], env: Mapping[str, str], plan: Obj | None) -> StartSupervisor:
        """Return what starts the supervisor of a container with this command, these variables and this plan of isolation."""
        if self._refused or not can_start_warm(argv, plan, self._launcher):
            return self._plain
        return functools.partial(self._start, {name: env[name] for name in _OWN_VARIABLES if name in env})

    def prepare_first(self) -> None:
        """Start the parent that the setting asks for, before there is a container for it."""
        with self._lock:
            if self._first:
                self._prepare(self._first, rest_seconds=0)

    def is_ready(self) -> bool:
        """Whether there is a parent that serves containers."""
        with self._lock:
            if self._parent is None or self._can_serve:
                return self._can_serve
            try:
                self._can_serve = self._parent.connection.recv(len(READY)) == READY
            except (BlockingIOError, TimeoutError):  # it rests or imports
                return False
            if not self._can_serve:  # such as without torch, so that another one could not either
                printed = self._parent.process.communicate()[0].decode(errors="replace")
                log.warning("event=no_warm_start reason=%r", printed.splitlines()[-1:])
                self._refused = True
                self._end()
                return False
            self._parent.connection.settimeout(ANSWER_SECONDS)
            return True

    def stop(self) -> None:
        """End the parent; supervisors and containers stay."""
        if (parent := self._parent) is not None:
            parent.process.kill()  # a container that waits for it has the lock
        with self._lock:
            self._refused = True
            self._end()

    def _start(self, variables: dict[str, str], folder: Path, lock: int) -> None:
        with self._lock:
            if self._parent is not None and self._first and self._variables == variables:
                self._first = {}  # later containers do not wait
                self._parent.connection.settimeout(_IMPORT_SECONDS)
                if not self.is_ready() and self._parent is not None:
                    self._parent.connection.settimeout(0.0)
            if self.is_ready() and self._parent is not None and self._variables == variables:
                try:
                    answer = self._parent.ask(folder, lock)
                except OSError:  # it was idle, and has ended
                    answer = b""
                if answer and not answer.startswith(FAILED):  # then there may be room for a spawner, which is smaller
                    return
                if not answer:  # a file of a module has changed, or it has ended
                    self._end()
        self._plain(folder, lock)
        with self._lock:
            self._prepare(variables, self._rest_seconds)

    def _prepare(self, variables: dict[str, str], rest_seconds: float) -> None:
        """Start a parent with these variables, and those that a container has before those of its pod, unless one is running."""
        if self._refused or (self._parent is not None and self._parent.process.poll() is None):
            return  # told to stop, or one is running
        self._end()
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # as in a container, whose streams are pipes
        env = {**machine_variables(isolated=True), **variables, ROOM: _ROOM}
        try:
            words = [sys.executable, str(Path(__file__).with_name("parent.py"))]
            self._parent = SpawnerProcess.begin(words, [str(rest_seconds), _ROOM], 0.0, cwd="/", env=env, **streams)
        except OSError as error:
            log.warning("event=no_warm_parent error=%s", error)
        self._variables = {name: variables[name] for name in _OWN_VARIABLES if name in variables}

    def _end(self) -> None:
        if self._parent is not None:
            self._parent.end()
        self._parent, self._can_serve = None, False
