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


def shared_folders(home: Path) -> tuple[Path, ...]:
    """Return the real paths of the folders of SETTING. Those that cannot be shared are left out with a warning.

    `home` is the home of the cluster; it stays hidden in a folder that contains it.
    """
    for problem in shared_folder_problems(home):
        log.warning("event=shared_folder_left_out %s", problem)
    return tuple(path.resolve() for path in _chosen() if not _problem(path, home))


def shared_folder_problems(home: Path) -> list[str]:
    """Return why folders of SETTING are not shared, one line for each."""
    return [f"{SETTING}: {path} is not shared: {problem}" for path in _chosen() if (problem := _problem(path, home))]


def _chosen() -> list[Path]:
    return [Path(path) for path in os.environ.get(SETTING, "").split(os.pathsep) if path]


def _problem(path: Path, home: Path) -> str:
    if not path.is_absolute() or not path.is_dir():
        return "it is not the absolute path of a folder"
    real = path.resolve()
    if real.is_relative_to(home.resolve()):
        return "it is in the home of the cluster, which holds its credentials"
    if Path.home().resolve().is_relative_to(real):
        return "it is or contains your home folder; name folders in it"
    return ""
