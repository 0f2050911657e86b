"""Runs of containers: started by the supervisor, observed through the supervisor's files, signalled by their process groups.

All state is in files below the pod's folder, so that a restarted node agent sees the same as the one that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.api.objects import Obj
from trainwright.controlplane.node.lifecycle.container_state import KILLED_CODE, STATUS_UNKNOWN, Run, Termination
from trainwright.controlplane.node.supervisor.child_command import kill_processes_with
from trainwright.controlplane.node.supervisor.start_supervisor import StartSupervisor, start_directly
from trainwright.flock import is_held, lock_descriptor

_STATE_SECONDS = 10.0
_LOST = "the end of the process was not observed: {}"
_LOST_SUPERVISOR = "its supervisor was killed"
_LOST_BOOT = "the machine was restarted"
POD_MARK = "TRAINWRIGHT_POD_UID"
RUN_MARK = "TRAINWRIGHT_EXECUTED_IN"
_POLL_SECONDS = 0.05
_KILL_SECONDS = 10.0


@dataclass(frozen=True)
class ContainerRun:
    """The `attempt`-th run (from 0) of a container, with its own `folder`."""

    name: str
    attempt: int
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(
        self,
        argv: list[str],
        env: dict[str, str],
        cwd: Path,
        more: Obj | None = None,
        *,
        backoff_seconds: float = 0.0,
        start_supervisor: StartSupervisor = start_directly,
    ) -> None:
        """Start the process. Variables are passed in a private file, not in arguments. Raises OSError (disk full, no supervisor).

        `more` are further keys of the supervisor's spec. `backoff_seconds` is kept for the start that follows this run's end.
        Replaces what a start that was interrupted has left.
        """
        if self.folder.exists() and self.was_never_started():
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=0o700, parents=True)
        self.log.touch(0o600)
        self._write("run.json", {"backoff": backoff_seconds})
        self._write("spec.json", {"argv": argv, "env": env, "cwd": str(cwd), "log": str(self.log), **(more or {})})
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock_descriptor(lock)  # inherited by the supervisor, so that it is held without interruption
            start_supervisor(self.folder, lock)
        finally:
            os.close(lock)

    @property
    def is_isolated(self) -> bool:
        """Whether its command was executed in namespaces of its own; an earlier life of the node may have had other settings."""
        return (self.folder / "identity.json").exists()

    def is_alive(self) -> bool:
        """Whether the supervisor is running, which it does until the last process of the container has exited."""
        return is_held(self.folder / "lock")

    def termination(self) -> Termination | None:
        """Return how it terminated, or None while it is running. An end that nobody observed is recorded when it is found."""
        if (result := self._recorded_termination()) is not None:
            return result  # its supervisor has seen the end
        if self.is_alive():
            return None  # the supervisor records the end before it ends itself
        if (result := self._recorded_termination()) is not None:  # it may have been written in between
            return result
        return self._lost()

    def observed(self, pod_uid: str) -> Run:
        """Return what the files say of this run, for the pod's lifecycle."""
        noted = self._read("run.json") or {}
        ended = self.termination()
        identity = f"process://{pod_uid}/{self.name}/{self.attempt}"
        return Run(self.attempt, identity, self.started_at(), ended, float(noted.get("backoff") or 0.0))

    def _lost(self) -> Termination:
        state = self._read("state.json") or {}
        message = _LOST.format(_LOST_BOOT if state.get("boot", _boot()) != _boot() else _LOST_SUPERVISOR)
        started, ended = float(state.get("startedAt") or self._created_at()), time.time()
        lost = {"code": KILLED_CODE, "reason": STATUS_UNKNOWN, "message": message, "finishedAt": ended}
        if not self.was_never_started():
            with contextlib.suppress(FileNotFoundError):  # removed with its pod
                self._write("exit.json", lost)
        return Termination(KILLED_CODE, ended, started, STATUS_UNKNOWN, message)

    def was_never_started(self) -> bool:
        """Whether its starter died before the supervisor ran: the supervisor removes the spec first."""
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
        deadline = time.monotonic() + _STATE_SECONDS
        while (state := self._read("state.json")) is None and self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)  # its supervisor is starting
        if state is None or not self.is_alive():
            return  # never started, or ended: its process id may be another process's
        pid = int(state["pid"])
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ends now, or is of another user
            if number == signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def _recorded_termination(self) -> Termination | None:
        ended = self._read("exit.json")
        if ended is None:
            return None  # it runs, or its supervisor was killed
        reason, message = str(ended.get("reason") or ""), str(ended.get("message") or "")
        return Termination(int(ended["code"]), float(ended["finishedAt"]), self.started_at() or 0.0, reason, message)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Write a file atomically."""
        temporary = self.folder / f"{name}.new"
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump(content, file)
        os.replace(temporary, self.folder / name)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:  # not written yet, or removed with its pod
            return None
        return content


def _boot() -> str:
    """The identity of this start of the machine; empty where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # not Linux
        return ""


def latest_run(container: str, folder: Path) -> ContainerRun | None:
    """Return the last run of a container below the pod's folder that was started, or None.

    Changes nothing: it is called for readers of logs too, while another thread is starting a run.
    """
    attempts = [int(name) for name in _names_in(folder / "containers" / container) if name.isdigit()]
    runs = (run_of(container, attempt, folder) for attempt in sorted(attempts, reverse=True))
    return next((run for run in runs if not run.was_never_started()), None)


def _names_in(folder: Path) -> list[str]:
    """The names in a folder, which may be removed with its pod at any time."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:  # not made yet, or removed
        return []


def containers_in(folder: Path) -> list[str]:
    """Return the names of the containers with runs below the pod's folder."""
    return _names_in(folder / "containers")


def latest_runs(folder: Path) -> list[ContainerRun]:
    """Return the last runs of all containers below the pod's folder."""
    return [run for name in containers_in(folder) if (run := latest_run(name, folder)) is not None]


def remove_old_runs(container: str, attempt: int, folder: Path) -> None:
    """Remove the runs before the one that preceded `attempt`: a kubelet keeps that one only."""
    for name in _names_in(folder / "containers" / container):
        number, _, _ = name.partition(".")  # a run's folder, and its files beside it
        if number.isdigit() and int(number) < attempt - 1:
            path = folder / "containers" / container / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def run_of(container: str, attempt: int, folder: Path) -> ContainerRun:
    return ContainerRun(container, attempt, folder / "containers" / container / str(attempt))


def kill_pod_processes(pod_uid: str) -> None:
    """Kill processes with the pod's UID in their environment, which have escaped their supervisor. Linux only."""
    kill_processes_with(f"{POD_MARK}={pod_uid}")


def kill_run_processes(run: ContainerRun, pod_uid: str) -> None:
    """Kill remaining processes of a run of a container, also those that were started in it by exec. Linux only."""
    kill_processes_with(f"{RUN_MARK}={run_mark(run, pod_uid)}")


def run_mark(run: ContainerRun, pod_uid: str) -> str:
    """Return the value of the variable RUN_MARK of processes of this run that have no namespaces, or were started by exec."""
    return f"{pod_uid}/{run.name}/{run.attempt}"


def stop_runs(runs: Iterable[ContainerRun], grace_seconds: float) -> None:
    """Stop these runs and wait for their exit, after SIGKILL for a limited time."""
    left = [run for run in runs if run.termination() is None]
    if grace_seconds > 0:
        for run in left:
            run.signal(signal.SIGTERM)
        left = _wait(left, grace_seconds)
    for run in left:
        run.signal(signal.SIGKILL)
    _wait(left, _KILL_SECONDS)


def _wait(runs: list[ContainerRun], seconds: float) -> list[ContainerRun]:
    deadline = time.monotonic() + seconds
    while (runs := [run for run in runs if run.termination() is None]) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return runs
