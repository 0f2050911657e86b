"""Who else may write what our programs make: pods of different users share a workspace."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from trainwright.api.names import UMASK_VARIABLE
from trainwright.workspace.errors import WorkspaceError


def apply_umask(environ: Mapping[str, str]) -> None:
    """Set this process's umask to that of TRAINWRIGHT_UMASK, in octal; unset or empty leaves it.

    Raises WorkspaceError naming a text that is no umask.
    """
    text = environ.get(UMASK_VARIABLE, "")
    if not text:
        return
    if not re.fullmatch(r"0?[0-7]{1,3}", text):
        raise WorkspaceError(f"{UMASK_VARIABLE}: {text!r} is no umask; expected octal digits, as in 0002")
    os.umask(int(text, 8))
