"""Gives a process a session keyring of its own: the one of the login that started the cluster holds its Kerberos tickets and the like.

Standard library only, because a container's supervisor loads this file. Source: keyctl_join_session_keyring(3), session-keyring(7).
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "ppc64": 271, "s390x": 280}
_KEYCTL_GENERIC = 219
"""Of asm-generic/unistd.h, which newer architectures have in common."""
_GET_KEYRING_ID, _JOIN_SESSION_KEYRING, _SESSION_KEYRING = 0, 1, -3
_libc = ctypes.CDLL(None, use_errno=True)


def join_new_session_keyring() -> None:
    """Replace this process's session keyring by a new, empty one, which its children inherit.

    Does nothing where no process can read a key: without keyrings in the kernel, or with a filter that refuses them, which children
    keep. Raises OSError: EDQUOT for a user with as many keys as `kernel.keys.maxkeys` allows.
    """
    if sys.platform != "linux":
        return
    number = _keyctl(_JOIN_SESSION_KEYRING, None)
    if number in (0, errno.ENOSYS) or (number == errno.EPERM and _keyctl(_GET_KEYRING_ID, _SESSION_KEYRING, 0) == errno.EPERM):
        return
    raise OSError(number, os.strerror(number), "join a new session keyring")


def _keyctl(operation: int, *arguments: int | None) -> int:
    """Return the number of the error, or 0."""
    words = [ctypes.c_long(argument or 0) for argument in (operation, *arguments)]
    call = _KEYCTL.get(os.uname().machine, _KEYCTL_GENERIC)
    return ctypes.get_errno() if _libc.syscall(ctypes.c_long(call), *words) < 0 else 0
