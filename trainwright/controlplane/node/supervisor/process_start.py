"""Starts a container's main process, isolated or not, and reports what prevented it.

Standard library only, because a container's supervisor loads this file. The supervisor learns from a pipe, which exec closes,
that the command was executed.
"""

import errno
import os
import signal
import sys

from trainwright.controlplane.node.supervisor.start_command import (
    CommandError,
    change_folder,
    execute,
    find_command,
    join_new_session_keyring,
    reset_process,
)

DEFAULT_UMASK = 0o077
_EXECUTES, _FAILED, _HAS_PID, _WANTS_MAPPING = b"X", b"E", b"P", b"M"
"""Kinds of the lines in the pipe; the last two are written by isolation/enter.py."""


class RunsHere(BaseException):
    """This process has become the container's, and runs the command itself. Raised in processes of warm_start/parent.py alone."""

    def __init__(self, argv: list, env: dict):  # type: ignore[type-arg]
        super().__init__("the command of the container runs in this process")
        self.argv, self.env = argv, env


class StartError(Exception):
    """The command could not be executed. The message is that of a container runtime where it has one."""


def start_process(spec: dict, stdout: int, stderr: int, *, runs_here: bool = False) -> int:  # type: ignore[type-arg]
    """Start the process of a container's spec, a child of this process, and return its id once its command was executed.

    This process must have a single thread, and be a subreaper. With `runs_here` the child raises RunsHere where it would execute
    the command. Raises StartError.
    """
    reader, status = os.pipe()
    supervisor, lifeline = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.close(lifeline)
        _run(spec, stdout, stderr, status, supervisor, runs_here=runs_here)
    os.close(status)
    os.close(supervisor)
    try:
        return _follow(child, reader, lifeline)
    finally:
        os.close(lifeline)


def _follow(child: int, reader: int, lifeline: int) -> int:
    """Serve the requests of the starting process until it has executed its command. Raises StartError."""
    pid, executes, message = child, False, ""
    with open(reader, "rb") as lines:
        for line in lines:
            kind, text = line[:1], line[1:-1].decode(errors="replace")
            if kind == _WANTS_MAPPING:
                message = _map_ids(child)
                if message:
                    break  # killed below, as it waits for the mapping
                _release(lifeline)
            elif kind == _HAS_PID:
                pid = int(text)
                os.waitpid(child, 0)  # now `pid` is a child of this process
                _release(lifeline)
            elif kind == _EXECUTES:
                executes = True
            elif kind == _FAILED:
                message = text
    if executes and not message:
        return pid  # it has executed the command
    if message:
        os.kill(pid, signal.SIGKILL)
    _, ended = os.waitpid(pid, 0)
    raise StartError(message or f"the process ended before its command was executed (wait status {ended})")


def _map_ids(child: int) -> str:
    from trainwright.controlplane.node.isolation.credentials import map_all_ids

    try:
        map_all_ids(child)
    except OSError as error:
        return f"isolation: map user and group ids: {error.strerror}"
    return ""


def _release(lifeline: int) -> None:
    try:
        os.write(lifeline, b"g")
    except BrokenPipeError:  # it has died, which the end of the other pipe will show
        return


def _run(spec: dict, out: int, err: int, status: int, supervisor: int, *, runs_here: bool) -> None:  # type: ignore[type-arg]
    """In the child: become the container's main process; never returns."""
    plan = spec.get("isolation")
    message = ""
    try:
        reset_process()
        join_new_session_keyring()
        cgroups = [os.open(os.path.join(path, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC) for path in spec.get("cgroup") or []]
        os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        if plan is None:
            os.setsid()
            for cgroup in cgroups:
                os.write(cgroup, b"0")
            if sys.platform == "linux":
                from trainwright.controlplane.node.isolation.credentials import die_with_parent

                die_with_parent(supervisor)
        else:
            _isolate(plan, spec["cwd"], cgroups, status, supervisor)
        os.umask(spec.get("umask", DEFAULT_UMASK))
        change_folder(spec["cwd"])
        file = find_command(spec["argv"][0], spec["env"].get("PATH", os.defpath))
        os.write(status, _EXECUTES + b"\n")
        if runs_here:
            raise RunsHere(spec["argv"], spec["env"])
        execute(file, spec["argv"], spec["env"])
    except OSError as error:
        message = f"prepare the process: {os.strerror(error.errno or errno.EIO)} ({error.filename})"
    except CommandError as error:
        message = str(error)
    except Exception as error:  # there is nobody else to report it to
        message = f"the start of the container has failed: {type(error).__name__}: {error}"
    os.write(status, _FAILED + message.replace("\n", " ").encode(errors="replace") + b"\n")
    os._exit(1)


def _isolate(plan: dict, cwd: str, cgroups: list, status: int, supervisor: int) -> None:  # type: ignore[type-arg]
    """Go on in the container's namespaces. Raises CommandError, OSError."""
    from trainwright.controlplane.node.isolation.enter import (
        IsolationError,
        create_namespaces,
        isolate,
    )
    from trainwright.controlplane.node.isolation.namespaces import close_on_exec_from

    try:
        create_namespaces(plan, status, supervisor)
        os.setsid()
        os.umask(0)
        for stream in (1, 2):  # so that the container's user may open /dev/stdout and /dev/stderr
            os.fchown(stream, plan["uid"], plan["gid"])
        isolate(plan, cwd, cgroups, supervisor)
        close_on_exec_from(3)
    except IsolationError as error:
        raise CommandError(str(error)) from error
