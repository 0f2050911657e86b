"""Keeps a container from abstract Unix sockets of the machine (X11, D-Bus), which belong to the network namespace that pods share.

Standard library only, because a container's supervisor loads this file. Source: Documentation/userspace-api/landlock.rst, "Scoping".
Signals are not scoped: hooks and commands of exec send them to the container's processes, and other ones are in another namespace.
"""

from __future__ import annotations

import ctypes
import os
import struct

_CREATE_RULESET, _RESTRICT_SELF, _GET_VERSION = 444, 446, 1
_SCOPES_SINCE = 6
"""The version of the interface (Linux 6.12)."""
_SCOPE_ABSTRACT_UNIX_SOCKET = 1
_libc = ctypes.CDLL(None, use_errno=True)


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
        return
    ruleset = _call(
        _CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_long(0), name="landlock_create_ruleset"
    )
    try:
        _call(_RESTRICT_SELF, ctypes.c_long(ruleset), ctypes.c_long(0), name="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: object, name: str) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
    return result
