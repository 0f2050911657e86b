"""Deleting a folder of the workspace so that a kill leaves no half: renamed to a hidden name first, then emptied."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
DELETED = ".deleted-"


def hide(folder: Path) -> Path:
    """Give a folder a hidden name beside its own, at which `remove_hidden` finds it; returns that. Raises OSError."""
    hidden = folder.with_name(f"{DELETED}{folder.name[:100]}-{secrets.token_hex(4)}")
    os.rename(folder, hidden)
    return hidden


def remove_hidden(parent: Path) -> None:
    """Empty and remove what `hide` left in `parent`, an earlier process's too. What cannot be removed is a warning."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(parent.iterdir()):
            if path.name.startswith(DELETED):
                remove_tree(path)


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it, read-only files too; links are removed, never followed.

    What cannot be removed is a warning.
    """
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, onerror=_after_permission)
    except OSError as error:
        log.warning("a folder could not be removed path=%s error=%s; remove it by hand", folder, error)


def _after_permission(function: Callable[..., Any], path: str, reason: Any) -> None:
    """Try again what failed, once we have given ourselves the permission."""
    error = reason[1]
    if isinstance(error, FileNotFoundError):  # another process removes the same
        return
    if not isinstance(error, PermissionError):
        raise error
    for place in (os.path.dirname(path), path):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(place).st_mode):
                os.chmod(place, stat.S_IRWXU)
    if function in (os.unlink, os.rmdir):
        function(path)
    elif os.access(path, os.R_OK | os.W_OK | os.X_OK):
        shutil.rmtree(path, onerror=_after_permission)
    else:
        raise error
