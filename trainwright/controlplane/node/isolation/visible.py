"""Finds the host folders of Python environments, which containers must see although home folders are hidden from them.

Also run as a script by other interpreters, of any version from 3.8 on, so it imports nothing from the package.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SECONDS = 20.0


def python_folders() -> list[Path]:
    """Return the folders and files of this interpreter: installation, virtual environment, search path, editable projects."""
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *_search_path(), *_editable_projects()]
    paths = {Path(os.path.abspath(path)) for path in found} | set(_installations(Path(sys.executable)))
    paths |= {Path(os.path.realpath(path)) for path in paths}
    return sorted(path for path in paths if path.exists() and path != Path("/"))


def python_folders_of(interpreter: Path) -> list[Path]:
    """Return the same of another environment's interpreter. Raises OSError or subprocess.SubprocessError if it does not run."""
    command = [str(interpreter), __file__]
    done = subprocess.run(command, cwd="/", capture_output=True, check=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)
    return [Path(path) for path in json.loads(done.stdout)]


def _search_path() -> list[str]:
    """Return the entries of the search path without the folder of the running script or the working directory."""
    chosen = {os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path}
    unwanted = {os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0])), os.path.dirname(os.path.abspath(__file__))} - chosen
    return [path for path in sys.path if path and os.path.abspath(path) not in unwanted]


def _editable_projects() -> list[str]:
    """Return the folders of projects that are installed in place. Source: direct_url.json of PEP 610."""
    texts = (distribution.read_text("direct_url.json") for distribution in metadata.distributions())
    origins = [json.loads(text) for text in texts if text]
    return [unquote(urlsplit(each["url"]).path) for each in origins if (each.get("dir_info") or {}).get("editable")]


def _installations(executable: Path) -> list[Path]:
    """Return the installation of each link in the chain from an environment's `python` to the real program."""
    found = []
    for _ in range(20):
        home = executable.parent.parent
        is_installation = (home / "pyvenv.cfg").exists() or any(home.glob("lib*/python3*"))
        found.append(home if is_installation else executable)
        if not executable.is_symlink():
            break  # the end of the chain
        executable = Path(os.path.normpath(executable.parent / os.readlink(executable)))
    return found


if __name__ == "__main__":
    print(json.dumps([str(path) for path in python_folders()]))
