"""Makes a Python environment and installs packages into it: by uv if there is one, else by venv and pip."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from trainwright.programs import Redaction, find_uv, installer_variables, run_in_group
from trainwright.storage.errors import NoSpace
from trainwright.tools.errors import ToolUnavailable

_LAST_LINES = 12
_UNREACHABLE = re.compile(
    r"dns error|error sending request|failed to fetch|failed to connect|connection (refused|reset)|timed out|network connectivity"
    r"|offline|name resolution|unreachable|NewConnectionError|client error \(connect\)",
    re.IGNORECASE,
)
_DISK_FULL = re.compile(r"no space left on device|os error 28\b|errno 28\b|disk quota exceeded", re.IGNORECASE)


def install(
    folder: Path,
    python: Path,
    requirements: Sequence[str],
    *,
    system_packages: bool,
    timeout_seconds: float,
) -> None:
    """Make an environment in `folder`, whose interpreter is then `python`, and install the requirements.

    Raises ToolUnavailable, NoSpace.
    """
    deadline = time.monotonic() + timeout_seconds
    for command in _commands(folder, python, requirements, system_packages):
        _run(command, folder, requirements, max(1.0, deadline - time.monotonic()))
        if system_packages:
            _show_packages_of_this(folder)


def _commands(folder: Path, python: Path, requirements: Sequence[str], system_packages: bool) -> list[list[str]]:
    uv = None if system_packages else find_uv()  # uv installs what it sees in another environment once more
    if uv is not None:
        return [
            [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(python), *requirements],
        ]
    visible = ["--system-site-packages"] if system_packages else []
    return [
        [sys.executable, "-I", "-m", "venv", *visible, str(folder)],
        [str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", *requirements],
    ]


def _run(command: list[str], folder: Path, requirements: Sequence[str], timeout_seconds: float) -> None:
    variables = installer_variables(os.environ)
    redact, last = Redaction(variables), deque[str](maxlen=_LAST_LINES)
    wanted = ", ".join(repr(redact(each)) for each in requirements)
    try:
        code = run_in_group(
            command,
            environment=variables,
            timeout_seconds=timeout_seconds,
            on_line=lambda line: last.append(redact(line)),
            cwd=folder,  # a project around the current folder may have settings for uv
        )
    except TimeoutError as error:
        raise ToolUnavailable(
            f"installing {wanted} {error}; install it into the image, or try again with a faster index"
        ) from None
    if not code:
        return
    said = "\n".join(last)
    if _DISK_FULL.search(said):
        raise NoSpace(f"{folder.parent}: the disk is full")
    if _UNREACHABLE.search(said):
        raise ToolUnavailable(
            f"{wanted} cannot be installed, since the package index cannot be reached; set PIP_INDEX_URL or PIP_FIND_LINKS to one "
            f"that can, or install it into the image:\n{said}"
        )
    raise ToolUnavailable(f"{wanted} cannot be installed ({Path(command[0]).name} ended with {code}):\n{said}")


def _show_packages_of_this(folder: Path) -> None:
    """Make the packages of this virtual environment visible: `--system-site-packages` shows those of the Python below it."""
    if sys.prefix == sys.base_prefix:
        return
    target = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (target / "trainwright-tools.pth").write_text("\n".join(lines) + "\n", "utf-8")
