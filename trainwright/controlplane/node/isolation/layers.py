"""Removes the writable layer of a container. Standard library only, because a container's supervisor loads this file."""

from __future__ import annotations

import contextlib
import os


def remove_layer(folder: str) -> None:
    """Remove a folder, also where its own folders may not be listed, as those of overlays and some of containers.

    What cannot be removed is left. Call it after the last process of the container has ended.
    """
    pending = [folder]
    found = []
    while pending:
        current = pending.pop()
        found.append(current)
        try:
            entries = _entries(current)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
    for current in reversed(found):  # a folder is found before those in it
        with contextlib.suppress(OSError):
            os.rmdir(current)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """List a folder whose files are to be removed, which takes all rights to it. Raises OSError."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        return list(entries)
