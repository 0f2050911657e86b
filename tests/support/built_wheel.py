"""The wheel of this tree, built and unpacked: what people install, for an environment that has only its dependencies.

Put the folder first in PYTHONPATH. The wheel is built without isolation, by the setuptools of this environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.client_environments import ROOT

_IN_THE_WHEEL = (
    "pyproject.toml",
    "setup.py",
    "package.json",
    "package-lock.json",
    "README.md",
    "LICENSE",
    "trainwright",
    "components",
    "operators",
    "pipelines",
    "dags",
    "quickstart",
)
_BUILD_SECONDS = 120


def unpacked_wheel(folder: Path) -> Path:
    """Build the wheel and unpack it below `folder`; returns the folder to import from. Skips the test where uv is missing."""
    uv = [sys.executable, "-m", "uv"]
    if subprocess.run([*uv, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("uv is not in this environment; `make lint` installs it")
    tree, out, installed = folder / "tree", folder / "wheels", folder / "installed"
    tree.mkdir(parents=True)
    for name in _IN_THE_WHEEL:  # copies: setuptools would take files of an earlier build along
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, tree / name)
    command = [*uv, "build", "--wheel", "--quiet", "--no-build-isolation", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--out-dir", str(out), str(tree)], capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    return installed
