"""A warm parent: imports torch, transformers and peft, and forks supervisors whose containers run Python in the forked process.

Usage: parent.py SOCKET_FD awaited|- ROOM, with the variables of a container. ROOM gives its children space for other command lines and
variables. It imports with a low priority unless a container waits for it. Then it writes R to its socket, or E and why it cannot,
and serves requests as spawner.py does. It answers S to one when a file of an imported module has changed, and ends; also when it was
idle for some minutes, and with the other end of its socket.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

if __name__ == "__main__":  # the package is found where the environment has it, and the folder of this file is not searched
    del sys.path[0]

from trainwright.controlplane.node.isolation import enter, layers
from trainwright.controlplane.node.supervisor.process_start import RunsHere
from trainwright.controlplane.node.supervisor.spawner import LONGEST_REQUEST, fork_supervisor
from trainwright.controlplane.node.supervisor.start_command import CommandError, execute, find_command
from trainwright.controlplane.node.warm_start.command_line import CommandLine, finds_other_modules, parse
from trainwright.controlplane.node.warm_start.fresh_process import become, search_folders
from trainwright.controlplane.node.warm_start.launcher_child import ForkingPopen
from trainwright.controlplane.node.warm_start.preload import CannotServe, Parent, preload
from trainwright.controlplane.node.warm_start.programs import BecomeProgram, run_known_program, run_program
from trainwright.controlplane.node.warm_start.ranks import ranks_of, serve_ranks
from trainwright.controlplane.node.warm_start.variables import differing

READY, NOT_READY, STALE = b"R", b"E", b"S"
AWAITED = "awaited"
ROOM = "TRAINWRIGHT_ROOM"
"""The variable whose length is the room for others."""
IDLE_SECONDS = 900.0
LOW_PRIORITY = 19
PRELOADED = (enter, layers)
"""What a supervisor imports only for an isolated container."""


def main(connection: socket.socket, *, is_awaited: bool) -> None:
    """Serve requests until the end, or become a container's process and run its program."""
    env = _initial_environment()
    os.environ.pop(ROOM, None)
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    if not is_awaited and _can_restore(priority):
        os.setpriority(os.PRIO_PROCESS, 0, LOW_PRIORITY)
    try:
        parent = preload(env)
    except (CannotServe, ImportError) as error:
        connection.send(NOT_READY + str(error).encode()[:LONGEST_REQUEST])
        return
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    program: BecomeProgram | None = None
    try:
        _serve(connection, parent)
    except RunsHere as started:
        program = BecomeProgram(started.argv, started.env)
    is_first = True
    while program is not None:
        try:
            _run(program, parent, is_first=is_first)
        except BecomeProgram as forked:
            program, is_first = forked.with_traceback(None), False
        else:
            return


def _serve(connection: socket.socket, parent: Parent) -> None:
    """Fork a supervisor for each request. Raises RunsHere in a process of a container."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    connection.settimeout(IDLE_SECONDS)
    try:
        connection.send(READY)
        while True:
            folder, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 1)
            if not folder:
                return
            if parent.is_stale():
                connection.send(STALE)
                return
            connection.send(fork_supervisor(connection, folder, descriptors[0], runs_here=True))
    except (TimeoutError, BrokenPipeError, ConnectionResetError):  # idle, or the node has ended
        return


def _run(program: BecomeProgram, parent: Parent, *, is_first: bool) -> None:
    """Run a command in this process if it does what it would do when executed; else execute it."""
    env = program.env
    path = env.get("PATH", os.defpath)
    command = _recognized(program, path, parent)
    if command is None:
        _execute(program, path)
        return
    become(command, env, parent.path, parent.added)
    if program.prepare is not None:
        program.prepare()
    if command.is_torchrun and not _prepare_ranks(command):
        _execute(program, path)
        return
    is_launcher = is_first and command.kind == "text"  # the node sends no other text
    if is_launcher:
        subprocess.Popen = ForkingPopen  # type: ignore[misc, assignment]
    if is_launcher or command.is_torchrun:
        run_known_program(command)
    run_program(command)


def _recognized(program: BecomeProgram, path: str, parent: Parent) -> CommandLine | None:
    """Return the command line if this process can run it, and None if it must be executed."""
    env = program.env
    if differing({**parent.added, **env}, {**parent.added, **parent.env}, parent.read):
        return None
    try:
        command = parse(program.argv, path)
        if command is None or finds_other_modules(command, search_folders(env), parent.loaded):
            return None
    except OSError:  # such as a script that the container's user cannot read
        return None
    return command


def _prepare_ranks(torchrun: CommandLine) -> bool:
    """Whether the ranks of torchrun will run in processes that were forked for them. Raises BecomeProgram in these."""
    count = ranks_of(torchrun.args)
    if count is None:
        return False
    try:
        serve_ranks(count)
    except OSError:  # there is no room for so many: torchrun will say so
        return False
    return True


def _execute(program: BecomeProgram, path: str) -> None:
    """Execute a command, with the actions of signals that it would have found without this process."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    if program.prepare is not None:
        program.prepare()
    try:
        file = find_command(program.argv[0], path)
    except CommandError as error:
        sys.exit(f"cannot start {program.argv[0]!r}: {error}")
    execute(file, program.argv, program.env)


def _initial_environment() -> dict[str, str]:
    with open("/proc/self/environ", "rb") as file:
        entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0") if entry]
    return {name: value for name, _, value in entries if name != ROOM}


def _can_restore(priority: int) -> bool:
    """Whether a lower priority can be undone, which children would inherit: not everyone may. Tried in a child."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    code = 1
    try:
        os.setpriority(os.PRIO_PROCESS, 0, LOW_PRIORITY)
        os.setpriority(os.PRIO_PROCESS, 0, priority)
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), is_awaited=sys.argv[2] == AWAITED)
