"""Deletes folders of the workspace: renames them to a hidden name first, so that a kill leaves no half-deleted folder visible."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
DELETED = ".deleted-"


def mark_deleted(folder: Path) -> Path:
    """Rename a folder to a hidden name that `purge_deleted` finds. Returns the new path. Raises OSError."""
    hidden = folder.with_name(f"{DELETED}{folder.name[:100]}-{secrets.token_hex(4)}")
    os.rename(folder, hidden)
    return hidden


def purge_deleted(parent: Path) -> None:
    """Remove all folders in `parent` that `mark_deleted` renamed, in any process. Failures are logged as warnings."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(parent.iterdir()):
            if path.name.startswith(DELETED):
                remove_tree(path)


def remove_tree(folder: Path) -> None:
    """Remove a folder with its contents, including read-only files. Links are removed, not followed.

    Failures are logged as warnings.
    """
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
        else:
            shutil.rmtree(folder, onerror=partial(_retry_with_permission, folder))
    except OSError as error:
        log.warning("a folder could not be removed, remove it manually path=%s error=%s", folder, error)


def _retry_with_permission(root: Path, function: Callable[..., Any], path: str, reason: Any) -> None:
    """Retry a failed removal below `root` after adding the missing permissions."""
    error = reason[1]
    if isinstance(error, FileNotFoundError):  # another process is removing the same folder
        return
    if not isinstance(error, PermissionError):
        raise error
    for directory in (os.path.dirname(path), path):
        with contextlib.suppress(OSError):
            _permit(root, directory)
    if function in (os.unlink, os.rmdir):
        function(path)
    elif os.access(path, os.R_OK | os.W_OK | os.X_OK):
        shutil.rmtree(path, onerror=partial(_retry_with_permission, root))
    else:
        raise error


def _permit(root: Path, directory: str) -> None:
    """Give the owner all permissions on a directory below `root`, or on that. Raises OSError.

    It is opened name by name: somebody may replace a part of the path by a link meanwhile, and other folders are not ours to change.
    """
    if not hasattr(os, "O_PATH"):  # macOS
        os.chmod(directory, stat.S_IRWXU, follow_symlinks=False)
        return
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    opened = os.open(root.parent, flags)
    try:
        for name in Path(directory).relative_to(root.parent).parts:
            below = os.open(name, flags | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = below
        if Path(directory) != root.parent:
            os.chmod(f"/proc/self/fd/{opened}", stat.S_IRWXU)
    finally:
        os.close(opened)
