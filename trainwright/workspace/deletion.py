"""Deletes folders of the workspace: renames them to a hidden name first, so that a kill leaves no half-deleted folder visible."""

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
            shutil.rmtree(folder, onerror=_retry_with_permission)
    except OSError as error:
        log.warning("a folder could not be removed, remove it manually path=%s error=%s", folder, error)


def _retry_with_permission(function: Callable[..., Any], path: str, reason: Any) -> None:
    """Retry a failed removal after adding the missing permissions."""
    error = reason[1]
    if isinstance(error, FileNotFoundError):  # another process is removing the same folder
        return
    if not isinstance(error, PermissionError):
        raise error
    for directory in (os.path.dirname(path), path):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(directory).st_mode):
                os.chmod(directory, stat.S_IRWXU)
    if function in (os.unlink, os.rmdir):
        function(path)
    elif os.access(path, os.R_OK | os.W_OK | os.X_OK):
        shutil.rmtree(path, onerror=_retry_with_permission)
    else:
        raise error
