"""Replaces itself by the command of an exec session, an exec probe or a hook, or runs it inside of an isolated container.

Usage: exec_child.py [--enter RUN ENV_FD] FOLDER TERMINAL COMMAND ...: starts in FOLDER, with standard input as controlling terminal
if TERMINAL is 1. With --enter, in the namespaces and as the user of the container whose run's folder is RUN; then FOLDER is a path
of the container, or empty for its working directory, and the command's environment is read as JSON from the file descriptor ENV_FD:
as this process's own environment, LD_PRELOAD in it would load a file of the container outside of its namespaces. The parent has
made this process a session leader; it is killed when its parent exits. Exit codes: 127 if the command is not found, 126 if it
cannot be started; else the command's, or its signal.
"""

import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import termios

if __name__ == "__main__":  # started with -P: the package is not in the path
    sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4)))

PR_SET_PDEATHSIG = 1
NOT_EXECUTABLE, NOT_FOUND = 126, 127
CANNOT_START = "cannot start "
"""How its own message begins, which comes instead of a command's output."""
UMASK = 0o077


def main() -> None:
    arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    leave_operators_keyring()
    if arguments[0] == "--enter":
        run, env, folder, terminal, *argv = arguments[1:]
        run_inside(run, int(env), folder, argv, has_terminal=terminal == "1")
    else:
        folder, terminal, *argv = arguments
        run_here(folder, argv, has_terminal=terminal == "1")


def leave_operators_keyring() -> None:
    from trainwright.controlplane.node.supervisor.start_command import join_new_session_keyring

    try:
        join_new_session_keyring()
    except OSError as error:
        os.write(2, f"{CANNOT_START}a command: {error.filename}: {error.strerror}\n".encode())
        os._exit(NOT_EXECUTABLE)


def run_here(folder: str, argv: list[str], *, has_terminal: bool) -> None:
    """Execute the command in this process; never returns."""
    from trainwright.controlplane.node.supervisor.start_command import reset_process

    if has_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    reset_process()
    os.umask(UMASK)
    try:
        os.chdir(folder)
        os.execvp(argv[0], argv)  # noqa: S606  (an argument list, no shell)
    except OSError as error:
        os.write(2, f"{CANNOT_START}{argv[0]!r} in {folder!r}: {error.strerror}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)


def run_inside(run: str, env_fd: int, folder: str, argv: list[str], *, has_terminal: bool) -> None:
    """Execute the command in the container of `run`, wait for it, and exit as it does; never returns."""
    from trainwright.controlplane.node.supervisor.join import JoinError, fork_inside
    from trainwright.controlplane.node.supervisor.start_command import (
        CommandError,
        change_folder,
        execute,
        find_command,
        reset_process,
    )

    with open(env_fd, encoding="utf-8") as file:
        env = json.load(file)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        child, identity = fork_inside(run)
        if child:
            wait_like(child, null)
        if has_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        reset_process()
        change_folder(folder or identity["cwd"])
        execute(find_command(argv[0], env.get("PATH", os.defpath)), argv, env, NOT_EXECUTABLE)
    except (CommandError, JoinError) as error:
        os.write(2, f"{CANNOT_START}{argv[0]!r} in the container: {error}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, CommandError) and error.is_missing else NOT_EXECUTABLE)


def wait_like(child: int, null: int) -> None:
    """Forward signals to the process group of `child`, wait for it, and end with its exit code or signal.

    `null` is the host's open null device: this process has joined the container, whose /dev is not to be trusted.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: forward(child, number))
    for stream in (0, 1, 2):  # so that the command alone holds the pipes
        os.dup2(null, stream)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


def forward(child: int, number: int) -> None:
    try:
        os.killpg(child, number)
    except ProcessLookupError:  # it has not made its session yet, or has ended
        os.kill(child, number)


if __name__ == "__main__":
    main()
