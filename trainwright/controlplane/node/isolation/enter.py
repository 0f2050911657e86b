"""The way of a container's first process into its namespaces, and that of a command which joins them later.

Standard library only, because a container's supervisor loads this file. The supervisor itself stays outside: it forks a starter,
the starter creates the namespaces and forks the process with PID 1 in them, and ends, which makes that one a child of the supervisor.
"""

from __future__ import annotations

import errno
import os

from trainwright.controlplane.node.isolation import namespaces
from trainwright.controlplane.node.isolation.credentials import die_with_parent, map_one_id, may_set_groups, take_identity
from trainwright.controlplane.node.isolation.root_filesystem import RootFilesystem

WANTS_MAPPING, HAS_PID, FAILED, EXECUTES = b"M", b"P", b"E", b"X"
"""Kinds of the lines that the processes write to the supervisor."""


class IsolationError(Exception):
    """The isolation of a container could not be set up. The message names the step."""


def create_namespaces(plan: dict, status: int, supervisor: int) -> None:  # type: ignore[type-arg]
    """In the starter: returns only in the process with PID 1. `supervisor` is a pipe from the supervisor.

    Raises IsolationError.
    """
    user, group = os.geteuid(), os.getegid()
    step = "create namespaces"
    try:
        namespaces.unshare(namespaces.FIRST_NAMESPACES)
        step = "map user and group ids"
        if plan["map_all_ids"]:
            os.write(status, WANTS_MAPPING + b"\n")
            _wait_for(supervisor)
        else:
            map_one_id(plan["uid"], plan["gid"], user, group)
        step = "create the first process"
        pid = os.fork()
    except OSError as error:
        raise _failed(step, error) from error
    if pid:
        os.write(status, HAS_PID + b"%d\n" % pid)
        os._exit(0)


def isolate(plan: dict, cwd: str, cgroups: list, supervisor: int) -> None:  # type: ignore[type-arg]
    """In the process with PID 1: build and enter the root, and take the container's identity. Raises IsolationError.

    `cgroups` are open files `cgroup.procs`.
    """
    root = RootFilesystem(plan)
    try:
        sets_groups, cgroup_namespace = may_set_groups(), namespaces.cgroup_namespace()
        root.step = f"set the host name {plan['hostname']}"
        namespaces.set_hostname(plan["hostname"])
        root.build(cwd)
        root.step = "join the control group"
        for cgroup in cgroups:
            os.write(cgroup, b"0")
        namespaces.unshare(cgroup_namespace)
        root.forbid_nested_namespaces()
        root.step = "take the identity of the container's user"
        _wait_for(supervisor)
        take_identity(plan, sets_groups=sets_groups)
        die_with_parent(supervisor)
    except OSError as error:
        raise _failed(root.step, error) from error


def _wait_for(supervisor: int) -> None:
    """Wait for a byte. A supervisor that has died ends this process, and with it the container."""
    if not os.read(supervisor, 1):
        os._exit(1)


def _failed(step: str, error: OSError) -> IsolationError:
    text = os.strerror(error.errno or errno.EIO)
    detail = f" ({error.filename})" if error.filename else ""
    return IsolationError(f"isolation: {step}: {text}{detail}")
