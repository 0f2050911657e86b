"""The system calls for namespaces and mounts that Python's standard library does not have. Linux 5.12 or newer.

Standard library only, because a container's supervisor loads this file. Every function raises OSError with the name of the call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID = 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
FIRST_NAMESPACES = NEWUSER | NEWNS | NEWPID | NEWUTS | NEWIPC
"""Those that a container is started in. The one of control groups comes last: its root is the group of the process that makes it."""
READ_ONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8
"""Attributes of mounts: MOUNT_ATTR_* of linux/mount.h."""

_MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x4000, 0x40000, 2
_EMPTY_PATH, _RECURSIVE, _NO_AUTOMOUNT = 0x1000, 0x8000, 0x800
_TREE_CLONE, _MOVE_FROM_FD, _MOVE_TO_FD = 1, 0x4, 0x40
_FS_CLOEXEC, _SET_FLAG, _SET_STRING, _CREATE = 1, 0, 1, 6
_NO_SYMLINKS, _NO_MAGIC_LINKS, _BENEATH = 4, 2, 8
_RACES = 100
"""How often a path is tried whose folders are renamed at that moment."""
_RANGE_CLOEXEC = 4
# The numbers of system calls since 5.2 are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT = 428, 429, 430, 431, 432
_CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 436, 437, 442
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = (
    1,
    4,
    24,
    36,
    38,
    47,
)
_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


class _OpenHow(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


def unshare(flags: int) -> None:
    """Move this process into new namespaces; with NEWPID, only its future children. It must have a single thread."""
    _checked("unshare", _libc.unshare(flags))


def cgroup_namespace() -> int:
    """Return the flag of control groups' namespaces, or 0 where the kernel has no control groups. Ask it outside of containers."""
    return NEWCGROUP if os.path.exists("/proc/self/ns/cgroup") else 0


def set_namespaces(pidfd: int, flags: int) -> None:
    """Join namespaces of the process of `pidfd`; its process namespace is joined by future children only. Linux 5.8."""
    _checked("setns", _libc.setns(pidfd, flags))


def set_hostname(name: str) -> None:
    data = name.encode()
    _checked("sethostname", _libc.sethostname(data, len(data)))


def prctl(option: int, argument: int, argument2: int = 0) -> None:
    _checked("prctl", _libc.prctl(option, *(ctypes.c_ulong(number) for number in (argument, argument2, 0, 0))))


def make_mounts_private() -> None:
    """Stop the propagation of mounts from and to other namespaces."""
    _checked("mount", _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))


def pivot_root() -> None:
    """Make the working directory, a mount, the root, and detach the old root. Source: the notes of pivot_root(2)."""
    _checked("pivot_root", _libc.pivot_root(b".", b"."))
    _checked("umount2", _libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def filesystem(kind: str, options: Mapping[str, str | None], attributes: int = 0) -> int:
    """Create a file system, and return a mount of it that is not attached yet. An option of None is a flag."""
    context = _syscall(_FSOPEN, kind.encode(), _FS_CLOEXEC, name=f"fsopen {kind}")
    try:
        for key, value in options.items():
            command, data = (_SET_FLAG, None) if value is None else (_SET_STRING, os.fsencode(value))
            _syscall(_FSCONFIG, context, command, key.encode(), data, 0, name=f"fsconfig {kind} {key}")
        _syscall(_FSCONFIG, context, _CREATE, None, None, 0, name=f"mount of {kind}")
        return _syscall(_FSMOUNT, context, _FS_CLOEXEC, attributes, name=f"fsmount {kind}")
    finally:
        os.close(context)


def clone_tree(source: int) -> int:
    """Return a copy of the mounts at and below an open file or folder that is not attached yet (a recursive bind mount)."""
    return _syscall(
        _OPEN_TREE, source, b"", _TREE_CLONE | os.O_CLOEXEC | _EMPTY_PATH | _RECURSIVE | _NO_AUTOMOUNT, name="open_tree"
    )


def restrict_mount(mount: int, attributes: int, *, recursive: bool) -> None:
    """Add attributes such as READ_ONLY to a mount, attached or not, without removing others."""
    wanted = _MountAttributes(attributes, 0, 0, 0)
    flags = _EMPTY_PATH | (_RECURSIVE if recursive else 0)
    _syscall(_MOUNT_SETATTR, mount, b"", flags, ctypes.byref(wanted), ctypes.sizeof(wanted), name="mount_setattr")


def attach_mount(mount: int, target: int) -> None:
    """Attach a mount to an open file or folder. It covers what is there."""
    _syscall(_MOVE_MOUNT, mount, b"", target, b"", _MOVE_FROM_FD | _MOVE_TO_FD, name="move_mount")


def open_without_symlinks(path: str, folder: int) -> int:
    """Open a path below an open folder, as a mount's source. Raises OSError with ELOOP if any component is a symbolic link."""
    return _open_path(path, folder, _NO_SYMLINKS | _NO_MAGIC_LINKS)


def open_beneath(path: str, folder: int) -> int:
    """Open a path below an open folder, as a mount's source, following links inside of the folder.

    Raises OSError with EXDEV if it leads out of the folder, and with EAGAIN if folders are renamed all the time meanwhile.
    """
    for _ in range(_RACES):
        try:
            return _open_path(path, folder, _BENEATH | _NO_MAGIC_LINKS)
        except BlockingIOError:  # a folder of the path was renamed meanwhile
            continue
    return _open_path(path, folder, _BENEATH | _NO_MAGIC_LINKS)


def _open_path(path: str, folder: int, resolve: int) -> int:
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, resolve)
    return _syscall(_OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how), name="open")


def close_on_exec_from(number: int) -> None:
    """Mark all file descriptors from `number` on to be closed by exec."""
    _syscall(_CLOSE_RANGE, number, ctypes.c_uint(0xFFFFFFFF), _RANGE_CLOEXEC, name="close_range")


def limit_bounding_set(kept: set[int]) -> None:
    """Remove all capabilities but `kept` from the bounding set, and all from the ambient set."""
    number = 0
    while True:
        if number not in kept and _libc.prctl(PR_CAPBSET_DROP, *(ctypes.c_ulong(n) for n in (number, 0, 0, 0))) != 0:
            break  # beyond the kernel's last capability
        number += 1
        if number > 63:
            break  # the sets of the kernel have 64 bits
    prctl(PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)


def set_capabilities(kept: set[int]) -> None:
    """Set the effective and permitted capabilities; none is inheritable."""
    words = [sum(1 << number % 32 for number in kept if number // 32 == half) for half in (0, 1)]
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)(words[0], words[0], 0, words[1], words[1], 0)
    _checked("capset", _libc.capset(header, data))


def _syscall(number: int, *arguments: object, name: str) -> int:
    # Integers are passed as longs: ctypes would leave the upper halves of the registers undefined.
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(name, int(_libc.syscall(ctypes.c_long(number), *words)))


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result
