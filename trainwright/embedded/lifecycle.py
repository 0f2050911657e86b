"""Starts and stops an embedded control plane as a separate process in its own session.

A home's processes are its control plane, ready or not, and what a killed one left behind. A process is recognized by its command line,
which is read again before each signal, so that a reused process id is harmless.
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

from trainwright.api.names import QUEUES_CONFIG_MAP
from trainwright.controlplane.controllers.local_queue.settings import parse_queues
from trainwright.controlplane.node.container import ContainerRun, containers_in, kill_pod_processes, latest_run
from trainwright.controlplane.node.limits.control_groups import remove_groups_of
from trainwright.controlplane.node.volumes.memory import MemoryFolders
from trainwright.embedded.home import Home, Running
from trainwright.embedded.options import ControllerName, InvalidControllers, format_controllers, parse_gates
from trainwright.embedded.process_setup import open_log

START_SECONDS = 45.0
"""Together with the time to end what did not get ready less than the minute that callers of `trainwright up` wait."""
_POLL_SECONDS = 0.02
TERMINATE_SECONDS = 7.0
"""From SIGTERM to SIGKILL; longer than POD_GRACE_SECONDS, which a control plane gives its pods."""
_KILL_SECONDS, _PODS_SECONDS = 1.5, 1.0
"""For the end of what was killed."""
MODULE = "trainwright.embedded"
_MODULES = (MODULE, "trainwright.controlplane")
"""What a running control plane was started as: the last one by an installation from before the packages were divided."""
POD_GRACE_SECONDS = 5.0
"""From SIGTERM to SIGKILL for the processes of pods when their control plane stops."""


class StartFailed(Exception):
    """The control plane did not start; the message is its last log line."""


def start(
    home: Home,
    *,
    port: int | None = None,
    node: bool = True,
    feature_gates: str = "",
    durability: str = "normal",
    queues: Path | None = None,
    controllers: tuple[ControllerName, ...] | None = None,
    max_token_seconds: int | None = None,
    host_folders: tuple[Path, ...] = (),
    seconds: float = START_SECONDS,
) -> tuple[Running, bool]:
    """Start a control plane in the home unless one is running; returns it and whether it was started.

    The process has its own session, so that Ctrl-C in the terminal does not reach it. One that is not ready after `seconds`
    is ended. `controllers` None starts all, and accepts those of one that is running; so do the defaults of the other options.
    `host_folders` are the folders below which everyone may choose the host path of a claim.
    Raises StartFailed, OSError for a home that is not writable or a file that is not readable, GateError, QueueError,
    InvalidControllers.
    """
    check_options(feature_gates, queues, controllers)
    home.make()
    if (running := home.running()) is not None:
        _check_running(home, running, port, queues, controllers)
        _check_settings(home, running, node=node, feature_gates=feature_gates, durability=durability)
        _check_limits(home, running, max_token_seconds, host_folders)
        return running, False
    command = command_line(
        home,
        port=port,
        node=node,
        feature_gates=feature_gates,
        durability=durability,
        queues=queues,
        controllers=controllers,
        max_token_seconds=max_token_seconds,
        host_folders=host_folders,
    )
    with open_log(home.log) as log:
        began = log.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        return _wait_until_ready(home, process, began, seconds)
    except BaseException:  # also after Ctrl-C: no half-started control plane stays behind
        _abort(home, process)
        raise


def _check_running(
    home: Home, running: Running, port: int | None, queues: Path | None, controllers: tuple[ControllerName, ...] | None
) -> None:
    """Check that a running control plane has what was asked for. Raises StartFailed."""
    if port not in (None, 0, running.port):
        raise StartFailed(
            f"a control plane already runs in {home.path} on port {running.port}; stop it first to start it on port {port}"
        )
    if queues is not None:
        raise StartFailed(
            f"a control plane already runs in {home.path}; stop it first to start it with these queues, "
            f"or change its ConfigMap {'/'.join(QUEUES_CONFIG_MAP)}"
        )
    if controllers not in (None, running.controllers):
        raise StartFailed(
            f"a control plane already runs in {home.path} with other controllers ({format_controllers(running.controllers)}); "
            "stop it first to start it with these"
        )


def _check_settings(home: Home, running: Running, *, node: bool, feature_gates: str, durability: str) -> None:
    """Check that a running control plane has what differs from the defaults. Raises StartFailed."""
    differences = []
    if running.node and not node:
        differences.append("with a node")
    if durability not in ("normal", running.durability):
        differences.append(f"with durability {running.durability}")
    if feature_gates and running.gates != vars(parse_gates(feature_gates)):
        differences.append("with other feature gates")
    if differences:
        raise StartFailed(
            f"a control plane already runs in {home.path} {', '.join(differences)}; stop it first to start it with these options"
        )


def _check_limits(home: Home, running: Running, max_token_seconds: int | None, host_folders: tuple[Path, ...]) -> None:
    """Check that a running control plane has the limits that were asked for. Raises StartFailed."""
    differences = []
    if max_token_seconds not in (None, running.token_seconds):
        differences.append(f"with tokens of at most {running.token_seconds} s")
    if host_folders and set(map(str, host_folders)) != set(running.host_folders):
        differences.append(f"with other host folders ({', '.join(running.host_folders) or 'none'})")
    if differences:
        raise StartFailed(
            f"a control plane already runs in {home.path} {' and '.join(differences)}; stop it first to start it with these options"
        )


def _wait_until_ready(home: Home, process: subprocess.Popen[bytes], began: int, seconds: float) -> tuple[Running, bool]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (running := home.running()) is not None:
            return running, running.pid == process.pid
        if process.poll() is not None and not home.is_locked():
            raise StartFailed(_last_words(home, began) or f"the control plane ended with exit code {process.returncode}")
        time.sleep(_POLL_SECONDS)
    raise StartFailed(f"the control plane in {home.path} was not ready after {seconds:.0f} s; see {home.log}")


def _last_words(home: Home, began: int) -> str:
    with open(home.log, "rb") as log:
        log.seek(began if log.seek(0, os.SEEK_END) >= began else 0)  # the file may have been rotated
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


def _abort(home: Home, process: subprocess.Popen[bytes]) -> None:
    """End a control plane that did not get ready, and the pods that it has started."""
    if process.poll() is not None:
        return  # it has ended itself, with its pods
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(TERMINATE_SECONDS)
    except subprocess.TimeoutExpired:  # it hangs
        process.kill()
        process.wait()
    if not home.is_locked():
        end_pods(home, 0, _PODS_SECONDS)
        _remove_left(home)


def _remove_left(home: Home) -> None:
    """Remove what a killed node has left outside of its home: control groups, and Secrets in memory."""
    remove_groups_of(home.node)
    MemoryFolders.of_home(home.node).of_secrets.remove_all()


def stop(home: Home) -> bool:
    """Stop the control plane of the home, ready or not, and everything that it runs, within ten seconds.

    Also ends pods that a killed control plane has left behind. Returns False if nothing was running.
    Raises TimeoutError if it does not end after SIGKILL.
    """
    was_running = end_control_planes(home, TERMINATE_SECONDS, _KILL_SECONDS)
    if home.is_locked():
        raise TimeoutError(f"the control plane in {home.path} did not stop; see {home.log}")
    # A control plane that ended in order has ended its pods, with a grace period.
    had_pods = end_pods(home, 0 if was_running else POD_GRACE_SECONDS, _PODS_SECONDS)
    _remove_left(home)
    home.withdraw()
    return was_running or had_pods


def check_options(feature_gates: str, queues: Path | None, controllers: tuple[ControllerName, ...] | None) -> None:
    """Check what the control plane would reject. Raises GateError, QueueError, InvalidControllers, OSError."""
    parse_gates(feature_gates)
    if queues is not None:
        parse_queues(queues.read_text("utf-8"))
        if controllers is not None and ControllerName.local_queue not in controllers:
            raise InvalidControllers(f"queues need the controller {ControllerName.local_queue}, which is not among those chosen")


def command_line(
    home: Home,
    *,
    port: int | None,
    node: bool,
    feature_gates: str,
    durability: str = "normal",
    queues: Path | None = None,
    controllers: tuple[ControllerName, ...] | None = None,
    max_token_seconds: int | None = None,
    host_folders: tuple[Path, ...] = (),
) -> list[str]:
    """The command line of the control plane process; with `controllers` None it has all."""
    command = [sys.executable, "-P", "-m", MODULE, "--home", str(home.path), "--feature-gates", feature_gates]
    command += ["--port", str(port)] if port is not None else []
    command += ["--durability", durability]
    command += ["--queues", str(queues.absolute())] if queues is not None else []
    command += ["--max-token-seconds", str(max_token_seconds)] if max_token_seconds is not None else []
    command += [part for folder in host_folders for part in ("--host-folder", str(folder))]
    if controllers is not None:
        command += ["--controllers", ",".join(controllers)] if controllers else ["--no-controllers"]
    return command if node else [*command, "--no-node"]


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
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(self.pid, number)
            return
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:  # it has ended
            return
        try:
            if self.is_alive():  # checked after opening: the handle stays with this process
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


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


def _is_control_plane(command: str, home: Home) -> bool:
    rests = (command.partition(f"-m\0{module}\0--home\0") for module in _MODULES)
    rest = next((rest for _, found, rest in rests if found), "")
    if sys.platform != "linux":  # `ps` shows where no argument ends
        return rest.startswith(str(home.path).replace(" ", "\0") + "\0")
    try:
        return bool(rest) and os.path.samefile(rest.partition("\0")[0], home.path)
    except FileNotFoundError:  # the home of that process is gone
        return False


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


def _wait(is_done: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (done := is_done()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return done


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
