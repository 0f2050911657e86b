"""Joins the namespaces of a running container, for commands of exec sessions, exec probes and hooks.

Standard library only, because it runs in a process of its own for every command.
"""

from __future__ import annotations

import fcntl
import json
import os

from trainwright.controlplane.node.isolation import namespaces
from trainwright.controlplane.node.isolation.credentials import die_with_parent, may_set_groups, take_identity
from trainwright.controlplane.node.supervisor.start_command import start_time


class JoinError(Exception):
    """The container cannot be joined: it is not running, or the kernel refuses."""


def fork_inside(run: str) -> tuple[int, dict]:  # type: ignore[type-arg]
    """Fork a child in the container whose run's folder is `run`; returns, like fork, in both processes.

    Returns (the child's process id or 0, the container's identity). The child is a session leader, has the container's user,
    umask and control groups, and is killed when this process or the container ends. Needs a single thread. Raises JoinError.
    """
    try:
        with open(os.path.join(run, "identity.json"), encoding="utf-8") as file:
            identity = json.load(file)
    except FileNotFoundError:
        raise JoinError("the container is not running in namespaces of its own") from None
    pidfd = _open_process(run, identity)
    try:
        cgroups = [os.open(os.path.join(path, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC) for path in identity["cgroup"]]
        # Until it executes the command, processes of the container must not reach this program's files through /proc (CVE-2019-5736).
        namespaces.prctl(namespaces.PR_SET_DUMPABLE, 0)
        sets_groups = may_set_groups()
        namespaces.set_namespaces(pidfd, namespaces.FIRST_NAMESPACES | namespaces.cgroup_namespace())
        reader, lifeline = os.pipe()
        child = os.fork()
        if child:
            os.close(reader)
            for cgroup in cgroups:
                os.write(cgroup, b"%d" % child)
            os.write(lifeline, b"g")
            return child, identity
        os.close(lifeline)
        if not os.read(reader, 1):
            os._exit(1)
        os.setsid()
        os.umask(identity["umask"])
        take_identity(identity, sets_groups=sets_groups)
        die_with_parent(reader)
    except OSError as error:
        raise JoinError(f"{error.strerror} ({error.filename or 'join the container'})") from error
    return 0, identity


def _open_process(run: str, identity: dict) -> int:  # type: ignore[type-arg]
    """Return a pidfd of the container's main process. Raises JoinError if it has ended, also if its id was given to another one."""
    ended = JoinError("the container has ended")
    try:
        pidfd = os.pidfd_open(identity["pid"])
        if not _is_supervised(run) or start_time(identity["pid"]) != identity["started"]:
            os.close(pidfd)
            raise ended
    except (ProcessLookupError, FileNotFoundError):
        raise ended from None
    return pidfd


def _is_supervised(run: str) -> bool:
    """Whether the run's supervisor is running, and holds its lock."""
    lock = os.open(os.path.join(run, "lock"), os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True  # the supervisor holds it
    finally:
        os.close(lock)
    return False
