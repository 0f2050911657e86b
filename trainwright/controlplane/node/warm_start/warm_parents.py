"""Decides which containers start warm, and keeps the parents that their processes are forked from."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api.objects import Obj
from trainwright.controlplane.node.environment import machine_variables
from trainwright.controlplane.node.isolation.visible import python_folders
from trainwright.controlplane.node.supervisor.spawner import FAILED
from trainwright.controlplane.node.supervisor.start_supervisor import StartSupervisor
from trainwright.controlplane.node.warm_start.parent import AWAITED, NOT_READY, READY, ROOM, STALE
from trainwright.runtimes.launcher_text import launcher_text

SETTING = "TRAINWRIGHT_WARM_START"
MOST_PARENTS = 2
"""Each has about 370 MiB. More are needed when containers differ in HOME or OMP_NUM_THREADS."""
_PROGRAM = Path(__file__).with_name("parent.py")
_ROOM = "-" * 65536
_ANSWER_SECONDS = 10.0
_WAIT_SECONDS, _POLL_SECONDS = 10.0, 0.02
_START_SECONDS = 120.0
_LLM_LAUNCHER = "orderly_exit.py"
"""What runs the scripts of the builtin trainers (runtimes/)."""
log = logging.getLogger(__name__)


def is_turned_on() -> bool:
    """Whether training pods may start warm: on Linux, unless the variable of `trainwright up` says off."""
    return sys.platform == "linux" and os.environ.get(SETTING, "").lower() not in ("off", "0", "false", "no")


def can_profit(argv: Sequence[str], plan: Obj | None) -> bool:
    """Whether a container starts torchrun, itself or through the launcher, in the cluster's own environment. Pure but for links.

    `plan` is that of its isolation; without one, each pod has another HOME, on which imported modules depend.
    """
    if plan is None or not _starts_torchrun(argv):
        return False
    folders = _python_folders()
    targets = [Path(mount["target"]) for mount in plan["mounts"]]
    return not any(target.is_relative_to(folder) or folder.is_relative_to(target) for target in targets for folder in folders)


def pays_to_wait(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a first training is faster when it waits for a parent: several processes would import torch, or transformers as well."""
    is_alone = env.get("PET_NNODES", "1") == "1" and env.get("PET_NPROC_PER_NODE", "1") == "1"
    return not is_alone or any(os.path.basename(word) == _LLM_LAUNCHER for word in argv[1:2])


def _starts_torchrun(argv: Sequence[str]) -> bool:
    if argv[0] == "torchrun":
        return True
    if argv[0] not in ("python", "python3") or list(argv[1:3]) != ["-c", launcher_text()] or "--" not in argv:
        return False
    at = list(argv).index("--")
    return "--packages" not in argv[:at] and list(argv[at + 1 : at + 2]) == ["torchrun"]


@functools.cache
def _python_folders() -> list[Path]:
    return [path for path in python_folders() if path.is_dir()]


@dataclass
class _Parent:
    process: subprocess.Popen[bytes]
    connection: socket.socket
    is_ready: bool = False
    began: float = field(default_factory=time.monotonic)
    used: float = field(default_factory=time.monotonic)

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_ANSWER_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


class WarmParents:
    """Starts containers warm where a parent is ready for them; else as `plain` does, and prepares a parent for the next ones.

    Thread-safe.
    """

    def __init__(self, plain: StartSupervisor) -> None:
        self._plain = plain
        self._lock = threading.Lock()
        self._parents: dict[tuple[str, str], _Parent] = {}
        self._refused = not is_turned_on()

    def starter(self, argv: Sequence[str], env: Mapping[str, str], plan: Obj | None) -> StartSupervisor:
        """Return what starts the supervisor of a container with this command, these variables and this plan of isolation."""
        if self._refused or not env.get("OMP_NUM_THREADS", "").isdecimal() or not can_profit(argv, plan):
            return self._plain
        return functools.partial(self._start, _key(env), pays_to_wait(argv, env))

    def is_ready(self, env: Mapping[str, str]) -> bool:
        """Whether there is a parent for containers with these variables."""
        with self._lock:
            parent = self._parents.get(_key(env))
            return parent is not None and self._is_ready(_key(env), parent)

    def stop(self) -> None:
        """End the parents; supervisors and containers stay."""
        with self._lock:
            self._refused = True
            for parent in self._parents.values():
                parent.end()
            self._parents.clear()

    def _start(self, key: tuple[str, str], waits: bool, folder: Path, lock: int) -> None:
        if waits:
            self._wait_for(key)
        with self._lock:
            answer = self._ask(key, os.fsencode(folder), lock)
        if answer:
            return
        self._plain(folder, lock)
        with self._lock:
            self._prepare(key, is_awaited=False)

    def _wait_for(self, key: tuple[str, str]) -> None:
        """Wait until a parent is ready that was started now or a moment ago, by this thread or another one."""
        with self._lock:
            self._prepare(key, is_awaited=True)
        while True:
            with self._lock:
                parent = self._parents.get(key)
                if parent is None or self._is_ready(key, parent) or time.monotonic() > parent.began + _WAIT_SECONDS:
                    return
            time.sleep(_POLL_SECONDS)

    def _ask(self, key: tuple[str, str], folder: bytes, lock: int) -> bytes:
        """Return the answer of the parent; empty if there is none, or it cannot start this one."""
        parent = self._parents.get(key)
        if parent is None or not self._is_ready(key, parent):
            return b""
        parent.used = time.monotonic()
        try:
            socket.send_fds(parent.connection, [folder], [lock])
            answer = parent.connection.recv(64)
        except OSError as error:  # such as one that was idle, and has ended
            log.info("event=warm_parent_ended error=%s", error)
            answer = b""
        if not answer or answer == STALE:
            self._parents.pop(key).end()
            return b""
        return b"" if answer.startswith(FAILED) else answer  # it is larger than a spawner, for which there may be room

    def _is_ready(self, key: tuple[str, str], parent: _Parent) -> bool:
        if parent.is_ready:
            return True
        try:
            message = parent.connection.recv(8192, socket.MSG_DONTWAIT)
        except BlockingIOError:
            if time.monotonic() < parent.began + _START_SECONDS:
                return False
            message = NOT_READY + b"the imports have not ended"
        except OSError as error:
            message = NOT_READY + str(error).encode()
        parent.is_ready = message == READY
        if not parent.is_ready:
            self._refused = True
            reason = message[len(NOT_READY) :].decode(errors="replace") or "the parent has ended"
            log.warning("event=no_warm_start reason=%r", reason)
            self._parents.pop(key).end()
        return parent.is_ready

    def _prepare(self, key: tuple[str, str], *, is_awaited: bool) -> None:
        """Start a parent, unless there is one. The one that was not used for the longest time makes room for it."""
        if self._refused or key in self._parents:
            return
        while len(self._parents) >= MOST_PARENTS:
            oldest = min(self._parents, key=lambda each: self._parents[each].used)
            self._parents.pop(oldest).end()
        try:
            self._parents[key] = _begin(*key, is_awaited=is_awaited)
        except OSError as error:
            log.warning("event=no_warm_parent error=%s", error)


def _key(env: Mapping[str, str]) -> tuple[str, str]:
    """Return those variables in which containers often differ, and on which imported modules depend: each pair needs a parent."""
    return env.get("HOME", ""), env.get("OMP_NUM_THREADS", "")


def _begin(home: str, threads: str, *, is_awaited: bool) -> _Parent:
    """Start a parent with the variables that a container has before those of its pod."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = machine_variables(isolated=True)
    env |= {"HOME": home, "OMP_NUM_THREADS": threads, ROOM: _ROOM}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(theirs.fileno()), AWAITED if is_awaited else "-", _ROOM],
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # as in a container, whose streams are pipes
            stderr=subprocess.STDOUT,
            cwd="/",
            env=env,
        )
    ours.settimeout(_ANSWER_SECONDS)
    return _Parent(process, ours)
