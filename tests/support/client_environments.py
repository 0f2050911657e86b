"""Environments with one client library each, built once by uv and kept between runs in a folder that git ignores.

An environment counts once its receipt is written, which is the last thing that building does: one that is half made, or made
for other requirements, is made anew.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEFAULT_CACHE = ROOT / ".clients"
BUILD_SECONDS = 300
_RECEIPT = ".requirements"
_UNREACHABLE = re.compile(
    r"dns error|error sending request|failed to (fetch|connect)|connection (refused|reset)|timed out|network connectivity"
    r"|offline|Temporary failure in name resolution|unreachable",
    re.IGNORECASE,
)


class Unavailable(Exception):
    """No environment, and no way to build one here; the message says what is missing."""


def client_environment(name: str, requirements: list[str], *, cache: Path | None = None, uv: str | None = None) -> Path:
    """The Python of an environment that has exactly these requirements, built when it is not there.

    Raises Unavailable where uv is missing or the package index cannot be reached, AssertionError with uv's words when the build fails.
    """
    folder = (cache or Path(os.environ.get("TRAINWRIGHT_CLIENTS", DEFAULT_CACHE))).absolute() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not _is_whole(folder, requirements):
            shutil.rmtree(folder, ignore_errors=True)
            _build(folder, requirements, uv or _uv())
    return folder / "bin" / "python"


def _is_whole(folder: Path, requirements: list[str]) -> bool:
    """Whether the environment was finished for these requirements, and its interpreter still runs."""
    receipt = folder / _RECEIPT
    if not receipt.is_file() or receipt.read_text("utf-8") != _receipt(requirements):
        return False
    try:
        return subprocess.run([folder / "bin" / "python", "-c", ""], capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def _build(folder: Path, requirements: list[str], uv: str) -> None:
    python = str(folder / "bin" / "python")
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", python, *requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, env=_variables())
        if done.returncode and _UNREACHABLE.search(done.stderr):
            raise Unavailable(
                f"{', '.join(requirements)} cannot be installed without a package index: {_last_line(done.stderr)}; "
                f"run once with a network, the environment is kept in {folder.parent}"
            )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    (folder / _RECEIPT).write_text(_receipt(requirements), "utf-8")


def _receipt(requirements: list[str]) -> str:
    return "\n".join([f"python {sys.version_info.major}.{sys.version_info.minor}", *requirements, ""])


def _uv() -> str:
    """uv, beside this very Python. Raises Unavailable."""
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Unavailable(f"uv is neither in {beside.parent} nor in PATH; `make lint` installs it")
    return found


def _variables() -> dict[str, str]:
    """Our variables, with what pip was told handed on to uv, as deploy/laptop/install.sh does."""
    variables = dict(os.environ)
    for ours, theirs in (
        ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"),
        ("SSL_CERT_FILE", "PIP_CERT"),
        ("UV_FIND_LINKS", "PIP_FIND_LINKS"),
    ):
        if theirs in variables:
            variables.setdefault(ours, variables[theirs])
    if not Path(variables.get("UV_FIND_LINKS", "/")).is_dir():
        del variables["UV_FIND_LINKS"]
    variables.pop("VIRTUAL_ENV", None)
    return variables


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone among the processes that build here; ends with the process."""
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
