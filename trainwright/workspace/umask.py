"""Sets the umask, since pods of different users share a workspace and must be able to write each other's files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from trainwright.api.names import UMASK_VARIABLE
from trainwright.workspace.errors import WorkspaceError


def apply_umask(environ: Mapping[str, str]) -> None:
    """Set the umask of this process to TRAINWRIGHT_UMASK (octal). Unset or empty keeps the current one.

    Raises WorkspaceError for an invalid value.
    """
    text = environ.get(UMASK_VARIABLE, "")
    if not text:
        return
    if not re.fullmatch(r"0?[0-7]{1,3}", text):
        raise WorkspaceError(f"{UMASK_VARIABLE}: {text!r} is not a umask; expected octal digits, as in 0002")
    os.umask(int(text, 8))
