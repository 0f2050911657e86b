"""Finds and ends the processes of a home: its control plane, ready or not, and what a killed one left behind.

A process is recognized by its command line, which is read again before each signal, so that a reused process id is harmless.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainwright.controlplane.home import Home
from trainwright.controlplane.node.container import ContainerRun, containers_in, kill_pod_processes, latest_run

MODULE = "trainwright.controlplane"
POD_GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL for the processes of pods when their control plane stops."""
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ControlPlaneProcess:
    """A process that runs, starts or stops the control plane of `home`."""

    home: Home
    pid: int

    def is_alive(self) -> bool:
        """Whether the process exists, is no zombie, and has not been replaced by another one with its id."""
        return self.pid in _with_command(lambda command: _is_control_plane(command, self.home))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if sys.platform != "linux":
            if self.is_alive():
                _kill(self.pid, number)
            return
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():  # checked after opening: the handle stays with this process
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def control_planes(home: Home) -> list[ControlPlaneProcess]:
    """The control plane processes of a home; more than one while several try to start."""
    return [ControlPlaneProcess(home, pid) for pid in _with_command(lambda command: _is_control_plane(command, home))]


def end_control_planes(home: Home, terminate_seconds: float, kill_seconds: float) -> bool:
    """End the control planes of a home: SIGTERM, and SIGKILL to those that are left. Returns False if there were none.

    A stopped (SIGSTOP) process is continued, so that it can end in order.
    """

    def have_ended() -> bool:
        return not control_planes(home) and not home.is_locked()  # the lock outlives the command line for a moment

    found = control_planes(home)
    for process in found:
        process.signal(signal.SIGCONT)  # first: a stopped process would get the next one in any of its threads
        process.signal(signal.SIGTERM)
    if not _wait(have_ended, terminate_seconds if found else 0):
        for process in control_planes(home):
            process.signal(signal.SIGKILL)
        _wait(have_ended, kill_seconds)
    return bool(found)


def end_pods(home: Home, grace_seconds: float, kill_seconds: float) -> bool:
    """End the processes of a home's pods, whose control plane must have ended. Returns False if there were none."""
    runs = list(_running(home))
    for run in runs if grace_seconds > 0 else []:
        run.signal(signal.SIGTERM)
    if not _wait(lambda: all(run.termination() for run in runs), grace_seconds):
        for run in runs:
            run.signal(signal.SIGKILL)
    for folder in _pod_folders(home):
        kill_pod_processes(folder.name)
    _wait(lambda: all(run.termination() for run in runs), kill_seconds)
    return bool(runs)


def _running(home: Home) -> Iterator[ContainerRun]:
    for folder in _pod_folders(home):
        for name in containers_in(folder):
            run = latest_run(name, folder)
            if run is not None and run.termination() is None:
                yield run


def _pod_folders(home: Home) -> list[Path]:
    pods = home.node / "pods"
    return [entry for entry in pods.iterdir() if entry.is_dir()] if pods.is_dir() else []


def _is_control_plane(command: str, home: Home) -> bool:
    head = f"-m\0{MODULE}\0--home\0"
    _, found, rest = command.partition(head)
    if sys.platform != "linux":  # `ps` shows where no argument ends
        return bool(found) and rest.startswith(str(home.path).replace(" ", "\0") + "\0")
    try:
        return bool(found) and os.path.samefile(rest.partition("\0")[0], home.path)
    except FileNotFoundError:
        return False


def _with_command(is_wanted: Callable[[str], bool]) -> list[int]:
    """The ids of this user's processes whose command line, with NUL after each argument, is wanted. Zombies have none."""
    listed = _commands_in_proc() if sys.platform == "linux" else _commands_of_ps()
    return [pid for pid, command in listed if pid != os.getpid() and is_wanted(command)]


def _commands_in_proc() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == os.getuid():
                yield int(entry.name), os.fsdecode((entry / "cmdline").read_bytes())
        except OSError:  # it has ended
            continue


def _commands_of_ps() -> Iterator[tuple[int, str]]:
    """From `ps`, which separates arguments by spaces."""
    listed = subprocess.run(
        ["ps", "-axww", "-U", str(os.getuid()), "-o", "pid=,command="], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        yield int(pid), command.replace(" ", "\0") + "\0"


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait(is_done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (done := is_done()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return done
