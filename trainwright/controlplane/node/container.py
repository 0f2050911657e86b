"""One run of one container: started through the shim, looked at through the files that the shim writes, signalled by its group.

Everything is in files below the pod's folder, so that a new node agent finds out the same as the one that started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHIM = Path(__file__).with_name("shim.py")
_STATE_SECONDS = 10.0
LOST_EXIT_CODE = 137


@dataclass(frozen=True)
class Exited:
    """How a container ended. Times are seconds since the epoch; a signal n is also exit code 128 + n."""

    code: int
    signal: int
    started_at: float
    finished_at: float
    lost: bool = False
    """Nobody saw the end: the machine or the shim went down with it."""


@dataclass(frozen=True)
class ContainerRun:
    """The `attempt`-th run (from 0) of a container. `folder` belongs to this run alone."""

    name: str
    attempt: int
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        """Start the process. Variables travel in a private file, never in arguments. Raises OSError (disk full, no shim)."""
        self.folder.mkdir(mode=0o700, parents=True)
        self.log.touch(0o600)
        spec = {"argv": argv, "env": env, "cwd": str(cwd), "log": str(self.log)}
        with open(self.folder / "spec.json", "w", encoding="utf-8", opener=_private) as file:
            json.dump(spec, file)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the shim inherits the lock: there is no moment without it
            subprocess.Popen(
                [sys.executable, "-S", "-E", "-P", str(SHIM), str(self.folder), str(lock)],
                pass_fds=(lock,),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
            )
        finally:
            os.close(lock)

    def is_alive(self) -> bool:
        """Whether its shim lives, which it does until the last process of the container is gone."""
        try:
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def exited(self) -> Exited | None:
        """How it ended, or None while it runs."""
        if (ended := self._ended()) is not None:
            return ended
        if self.is_alive():
            return None
        if (ended := self._ended()) is not None:  # it may have been written in between
            return ended
        started = self.started_at() or self._made_at()
        return Exited(LOST_EXIT_CODE, signal.SIGKILL, started, time.time(), lost=True)

    def never_started(self) -> bool:
        """Whether whoever was to start it died before there was a shim: the shim removes the spec as its first deed."""
        return ((self.folder / "spec.json").exists() or not (self.folder / "lock").exists()) and not self.is_alive()

    def _made_at(self) -> float:
        try:
            return self.folder.stat().st_mtime
        except FileNotFoundError:  # removed with its pod, while somebody reads its log
            return time.time()

    def started_at(self) -> float | None:
        state = self._read("state.json")
        return float(state["startedAt"]) if state else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its first process, as a container runtime does; SIGKILL goes to the whole group."""
        pid = self._pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def _ended(self) -> Exited | None:
        ended = self._read("exit.json")
        if ended is None:
            return None
        return Exited(
            int(ended["code"]), int(ended["signal"]), self.started_at() or ended["finishedAt"], float(ended["finishedAt"])
        )

    def _pid(self) -> int | None:
        """The first process, waiting for a shim that is just starting; None once it has ended."""
        deadline = time.monotonic() + _STATE_SECONDS
        while (state := self._read("state.json")) is None and self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        if state is None or not self.is_alive():
            return None
        return int(state["pid"])

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        return content


def latest_run(container: str, folder: Path) -> ContainerRun | None:
    """The last run of a container below the pod's folder, or None when it never ran; a start that never was is cleared away."""
    home = folder / "containers" / container
    attempts = [int(entry.name) for entry in home.iterdir() if entry.name.isdigit()] if home.is_dir() else []
    for attempt in sorted(attempts, reverse=True):
        run = run_of(container, attempt, folder)
        if not run.never_started():
            return run
        shutil.rmtree(run.folder, ignore_errors=True)
    return None


def run_of(container: str, attempt: int, folder: Path) -> ContainerRun:
    return ContainerRun(container, attempt, folder / "containers" / container / str(attempt))


def end_marked(pod_uid: str) -> None:
    """Kill whatever still carries a pod's mark in its environment: what slipped away from its shim. Linux only."""
    _end_all_with(f"{POD_MARK}={pod_uid}")


def end_executed(run: ContainerRun, pod_uid: str) -> None:
    """Kill what was executed in a run of a container besides its own command, and is still there. Linux only."""
    _end_all_with(f"{EXEC_MARK}={exec_mark(run, pod_uid)}")


def exec_mark(run: ContainerRun, pod_uid: str) -> str:
    """What the variable EXEC_MARK says in whatever is executed in this run."""
    return f"{pod_uid}/{run.name}/{run.attempt}"


def _end_all_with(variable: str) -> None:
    marker = variable.encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker in environment:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


POD_MARK = "TRAINWRIGHT_POD_UID"
EXEC_MARK = "TRAINWRIGHT_EXECUTED_IN"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
