"""Replaces a folder by another without a moment in which there is none, where the platform can exchange two names."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
"""Linux: renameat2(2)."""
_RENAME_SWAP = 2
"""macOS: renamex_np(2)."""
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two existing files or folders of one file system atomically.

    Returns False, and has done nothing, if the system or the file system cannot do it. Raises OSError.
    """
    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if sys.platform == "darwin":
        if not hasattr(library, "renamex_np"):
            return False
        failed = library.renamex_np(*names, ctypes.c_uint(_RENAME_SWAP))
    else:
        if not hasattr(library, "renameat2"):
            return False
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _NOT_SUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(second))
