"""Installs the shims of training frameworks in a Python environment that the node makes. See the package `shims` for what they are."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).parent / "shims"
_PACKAGE = "trainwright_shims"


def install_shims(site_packages: Path) -> None:
    """Copy the shims into an environment, or bring those there up to date. Interpreters may start meanwhile. Raises OSError."""
    target = site_packages / _PACKAGE
    target.mkdir(exist_ok=True)
    sources = {path.name: path.read_bytes() for path in sorted(_SOURCE.glob("*.py"))}
    for name in sorted(sources, key="__init__.py".__eq__):  # it names the others, so it comes last
        _write(target / name, sources[name])
    for path in target.glob("*.py"):
        if path.name not in sources:
            path.unlink(missing_ok=True)
    _write(site_packages / f"{_PACKAGE}.pth", f"import {_PACKAGE}\n".encode())


def _write(path: Path, content: bytes) -> None:
    """Replace a file at once, if its content is another one. Everyone may read it."""
    if path.is_file() and path.read_bytes() == content:
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # containers of any user read it
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
