"""The folders of this machine that every pod sees at their own paths: the operator's choice, for code and data outside of volumes.

A cluster has nothing like it. A job that needs it does not run there: volumes are the portable way.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

SETTING = "TRAINWRIGHT_SHARED_FOLDERS"
"""An environment variable of the control plane: absolute paths, with colons between them."""
log = logging.getLogger(__name__)


def shared_folders() -> tuple[Path, ...]:
    """Return the real paths of the folders of SETTING. Those that are missing, or not absolute, are left out with a warning."""
    chosen = [Path(path) for path in os.environ.get(SETTING, "").split(os.pathsep) if path]
    found = tuple(path.resolve() for path in chosen if path.is_absolute() and path.is_dir())
    if len(found) < len(chosen):
        missing = ", ".join(str(path) for path in chosen if path.resolve() not in found)
        log.warning("event=shared_folder_left_out setting=%s paths=%s: not an absolute path of a folder", SETTING, missing)
    return found
