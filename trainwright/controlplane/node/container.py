"""One run of a container: started by the shim, observed through the shim's files, signalled by its process group.

All state is in files below the pod's folder, so that a restarted node agent sees the same as the one that started it.
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
class Termination:
    """How a container terminated. Times are in seconds since the epoch. Signal n has exit code 128 + n."""

    code: int
    signal: int
    started_at: float
    finished_at: float
    is_lost: bool = False
    """The exit was not observed, because the machine or the shim stopped."""


@dataclass(frozen=True)
class ContainerRun:
    """The `attempt`-th run (from 0) of a container, with its own `folder`."""

    name: str
    attempt: int
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        """Start the process. Variables are passed in a private file, not in arguments. Raises OSError (disk full, no shim).

        Replaces what a start that was interrupted has left.
        """
        if self.folder.exists() and self.was_never_started():
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700, parents=True)
        self.log.touch(0o600)
        spec = {"argv": argv, "env": env, "cwd": str(cwd), "log": str(self.log)}
        with open(self.folder / "spec.json", "w", encoding="utf-8", opener=_private) as file:
            json.dump(spec, file)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # inherited by the shim, so that it is held without interruption
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
        """Whether the shim is running, which it does until the last process of the container has exited."""
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

    def termination(self) -> Termination | None:
        """Return how it terminated, or None while it is running."""
        if (result := self._recorded_termination()) is not None:
            return result
        if self.is_alive():
            return None
        if (result := self._recorded_termination()) is not None:  # it may have been written in between
            return result
        started = self.started_at() or self._created_at()
        return Termination(LOST_EXIT_CODE, signal.SIGKILL, started, time.time(), is_lost=True)

    def was_never_started(self) -> bool:
        """Whether its starter died before the shim ran: the shim removes the spec first."""
        return ((self.folder / "spec.json").exists() or not (self.folder / "lock").exists()) and not self.is_alive()

    def _created_at(self) -> float:
        try:
            return self.folder.stat().st_mtime
        except FileNotFoundError:  # removed with its pod while a client reads its log
            return time.time()

    def started_at(self) -> float | None:
        state = self._read("state.json")
        return float(state["startedAt"]) if state else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the main process, like a container runtime; SIGKILL is sent to the whole group."""
        pid = self._pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number == signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def _recorded_termination(self) -> Termination | None:
        ended = self._read("exit.json")
        if ended is None:
            return None
        return Termination(
            int(ended["code"]), int(ended["signal"]), self.started_at() or ended["finishedAt"], float(ended["finishedAt"])
        )

    def _pid(self) -> int | None:
        """Return the main process, waiting for a starting shim; None after it has terminated."""
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
    """Return the last run of a container below the pod's folder that was started, or None.

    Changes nothing: it is called for readers of logs too, while another thread is starting a run.
    """
    attempts = [int(name) for name in _names_in(folder / "containers" / container) if name.isdigit()]
    runs = (run_of(container, attempt, folder) for attempt in sorted(attempts, reverse=True))
    return next((run for run in runs if not run.was_never_started()), None)


def containers_in(folder: Path) -> list[str]:
    """Return the names of the containers with runs below the pod's folder."""
    return _names_in(folder / "containers")


def _names_in(folder: Path) -> list[str]:
    """The names in a folder, which may be removed with its pod at any time."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def run_of(container: str, attempt: int, folder: Path) -> ContainerRun:
    return ContainerRun(container, attempt, folder / "containers" / container / str(attempt))


def kill_pod_processes(pod_uid: str) -> None:
    """Kill processes with the pod's UID in their environment, which have escaped their shim. Linux only."""
    _kill_processes_with(f"{POD_MARK}={pod_uid}")


def kill_exec_processes(run: ContainerRun, pod_uid: str) -> None:
    """Kill remaining processes that were started by exec in a run of a container. Linux only."""
    _kill_processes_with(f"{EXEC_MARK}={exec_mark(run, pod_uid)}")


def exec_mark(run: ContainerRun, pod_uid: str) -> str:
    """Return the value of the variable EXEC_MARK of processes started by exec in this run."""
    return f"{pod_uid}/{run.name}/{run.attempt}"


def _kill_processes_with(variable: str) -> None:
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
