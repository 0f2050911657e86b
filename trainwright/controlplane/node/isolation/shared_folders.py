"""The folders of this machine that every pod sees at their own paths: the operator's choice, for code and data outside of volumes.

A cluster has nothing like it. A job that needs it does not run there: volumes are the portable way.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from trainwright.controlplane.host_paths import HostPathPolicy, HostPathRefused

SETTING = "TRAINWRIGHT_SHARED_FOLDERS"
"""An environment variable of the control plane: absolute paths, with colons between them."""
log = logging.getLogger(__name__)


def shared_folders(policy: HostPathPolicy) -> tuple[Path, ...]:
    """Return the real paths of the folders of SETTING. Those that cannot be shared are left out with a warning.

    The home of the cluster stays hidden in a folder that contains it.
    """
    for problem in shared_folder_problems(policy):
        log.warning("event=shared_folder_left_out %s", problem)
    return tuple(path.resolve() for path in _chosen() if not _problem(path, policy))


def shared_folder_problems(policy: HostPathPolicy) -> list[str]:
    """Return why folders of SETTING are not shared, one line for each."""
    return [f"{SETTING}: {path} is not shared: {problem}" for path in _chosen() if (problem := _problem(path, policy))]


def _chosen() -> list[Path]:
    return [Path(path) for path in os.environ.get(SETTING, "").split(os.pathsep) if path]


def _problem(path: Path, policy: HostPathPolicy) -> str:
    if not path.is_absolute() or not path.is_dir():
        return "it is not the absolute path of a folder"
    if Path.home().resolve().is_relative_to(path.resolve()):
        return "it is or contains your home folder; name folders in it"
    try:
        policy.check_outside_own(path, may_contain=True)
    except (HostPathRefused, OSError) as error:
        return str(error)
    return ""
