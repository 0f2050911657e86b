"""Who a container's processes are, and what they lose: id mappings, user, groups, capabilities, and abstract sockets of the machine.

Standard library only, because a container's supervisor loads this file. The same identity is taken by commands of exec sessions.
Abstract Unix sockets (X11, D-Bus) belong to the network namespace that pods share: Landlock keeps containers from those of others.
It does not scope signals: hooks and commands of exec send them to the container's processes; other ones are in another namespace.
Source: Documentation/userspace-api/landlock.rst, "Scoping".
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import struct

from trainwright.controlplane.node.isolation import namespaces

DEFAULT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE NET_RAW SYS_CHROOT MKNOD AUDIT_WRITE SETFCAP.

What containerd gives to a container; none of them allows it to change mounts.
"""
_CREATE_RULESET, _RESTRICT_SELF, _GET_VERSION = 444, 446, 1
_SCOPES_SINCE = 6
"""The version of the interface (Linux 6.12)."""
_SCOPE_ABSTRACT_UNIX_SOCKET = 1
_libc = ctypes.CDLL(None, use_errno=True)


def map_one_id(uid: int, gid: int, user: int, group: int) -> None:
    """In a new user namespace: map `uid` and `gid` to `user` and `group`, the ids of this process before it entered.

    All that an unprivileged process may do. Its supplementary groups stay, and are shown as 65534.
    """
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {user} 1")
    _write("/proc/self/gid_map", f"{gid} {group} 1")


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def map_all_ids(pid: int) -> None:
    """Map the ids of the user namespace of `pid`, a child of this one, to the same ids of this one. Needs root."""
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}", encoding="ascii") as file:
            ranges = [line.split() for line in file]
        _write(f"/proc/{pid}/{name}", "".join(f"{first} {first} {count}\n" for first, _, count in ranges))


def take_identity(identity: dict, *, sets_groups: bool) -> None:  # type: ignore[type-arg]
    """Become the user of a container: `uid`, `gid`, `groups`, `capabilities` (numbers), `no_new_privs`, and lose all else.

    `processes` is how many processes and threads the container may have: they are counted by its user namespace. The kernel does
    not count those of the machine's root. `sets_groups`: the answer of `may_set_groups`. Raises OSError.
    """
    most = min(identity["processes"], *(limit for limit in resource.getrlimit(resource.RLIMIT_NPROC) if limit >= 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    leave_abstract_sockets_of_others()
    kept = set(identity["capabilities"])
    if identity["map_all_ids"] and sets_groups:
        os.setgroups(identity["groups"])
    namespaces.limit_bounding_set(kept)
    os.setresgid(identity["gid"], identity["gid"], identity["gid"])
    os.setresuid(identity["uid"], identity["uid"], identity["uid"])
    _check_ids("group", identity["gid"], os.getresgid())
    _check_ids("user", identity["uid"], os.getresuid())
    namespaces.set_capabilities(kept if identity["uid"] == 0 else set())
    if identity["no_new_privs"]:
        namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)


def _check_ids(kind: str, wanted: int, found: tuple[int, int, int]) -> None:
    """The system calls take -1, which is 2**32 - 1, for "unchanged" and succeed."""
    if found != (wanted, wanted, wanted):
        number = errno.EINVAL
        raise OSError(number, os.strerror(number), f"{kind} {wanted} cannot be taken: the {kind} is {found[1]}")


def may_set_groups() -> bool:
    """Whether a process may set its supplementary groups here and in namespaces below.

    To be asked before a container is entered: a pod may have mounted something else at this path.
    """
    with open("/proc/self/setgroups", "rb") as file:
        return file.read().strip() == b"allow"


def die_with_parent(alive: int) -> None:
    """Have this process killed when its parent dies. The parent holds the only writing end of the pipe `alive`.

    Changes of credentials reset it. The pipe shows a parent that died before, whose process id may be of another namespace.
    """
    namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
    poll = select.poll()
    poll.register(alive, 0)
    if poll.poll(0):
        os._exit(128 + signal.SIGKILL)


def landlock_version() -> int:
    """Return the version of the kernel's interface; 0 where it has none, or it is turned off."""
    return max(int(_libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_long(0), ctypes.c_long(_GET_VERSION))), 0)


def ruleset_attributes(version: int) -> bytes:
    """Return a `struct landlock_ruleset_attr` that restricts no files and no ports; empty for a version without scopes."""
    return struct.pack("=QQQ", 0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET) if version >= _SCOPES_SINCE else b""


def leave_abstract_sockets_of_others() -> None:
    """Let this process and its future children connect only to abstract sockets that they have made. Raises OSError.

    Does nothing on a kernel that cannot. Needs CAP_SYS_ADMIN in its user namespace.
    """
    attributes = ruleset_attributes(landlock_version())
    if not attributes:
        return  # the kernel is older than scopes
    ruleset = _landlock_call(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_long(0), name="landlock_create_ruleset"
    )
    try:
        _landlock_call(_RESTRICT_SELF, ctypes.c_long(ruleset), ctypes.c_long(0), name="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _landlock_call(number: int, *arguments: object, name: str) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
    return result
