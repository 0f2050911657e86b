"""Removes the writable layer of a container. Standard library only, because a container's supervisor loads this file."""

from __future__ import annotations

import contextlib
import os


def remove_layer(folder: str) -> None:
    """Remove a folder, also where its own folders may not be listed, as those of overlays and some of containers.

    What cannot be removed is left. Call it after the last process of the container has ended.
    """
    for current, folders, _ in os.walk(folder):
        for name in folders:
            path = os.path.join(current, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
    for current, folders, files in os.walk(folder, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(current, name))
        for name in folders:
            path = os.path.join(current, name)
            with contextlib.suppress(OSError):
                (os.unlink if os.path.islink(path) else os.rmdir)(path)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
