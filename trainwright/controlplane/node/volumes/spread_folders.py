"""Tells ext4 that the folders in a folder have nothing to do with each other, so that it spreads them over the disk.

The files of pods come and go. ext4 without a journal, as on many virtual machines, does not use the number of a file again for some
minutes, and looks past all of them when it makes the next one in the same place: a pod would start the more slowly the more have
ended shortly before. Source: `recently_deleted` and `find_group_orlov` in fs/ext4/ialloc.c; the flag is T of chattr(1).
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import sys
from pathlib import Path

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, on 64-bit machines."""
TOP_OF_HIERARCHIES = 0x20000
_FLAGS = "l"
log = logging.getLogger(__name__)


def spread_folders(folder: Path) -> bool:
    """Mark an existing folder. Returns False where the file system has no such mark, which does no harm."""
    if sys.platform != "linux":
        return False
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = folder_flags(descriptor)
        if not flags & TOP_OF_HIERARCHIES:
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack(_FLAGS, flags | TOP_OF_HIERARCHIES))
    except OSError as error:
        log.debug("event=folder_not_marked path=%s error=%s", folder, error)
        return False
    finally:
        os.close(descriptor)
    return True


def folder_flags(descriptor: int) -> int:
    """Return the flags of an open folder. Raises OSError where the file system has none."""
    return int(struct.unpack(_FLAGS, fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack(_FLAGS, 0)))[0])
