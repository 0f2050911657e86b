"""Environments of tools: each has its own Python environment, so that its dependencies never meet those of Trainwright or of training.

An environment counts once its receipt is written, which is the last step of building it: an incomplete one is rebuilt. If this very
environment has the packages that a tool needs, nothing is built: an image, or a site without a network, brings tools along.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trainwright.storage.errors import StorageError
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.transfer import disk_errors, write_bytes
from trainwright.tools.errors import BadToolInput, ToolUnavailable
from trainwright.tools.installation import install

CACHE_VARIABLE = "TRAINWRIGHT_TOOLS"
BUILD_SECONDS = 1800.0
"""Enough for some gigabytes on a slow network."""
_RECEIPT = ".trainwright-tool.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


def tool_environment(
    requirements: Sequence[str],
    *,
    name: str,
    cache: Path | None = None,
    system_packages: bool = False,
    timeout_seconds: float = BUILD_SECONDS,
) -> Path:
    """Return the Python of an environment that has these requirements, and build it first if there is none.

    That is the Python of this environment, if it satisfies all of them.

    Args:
        requirements: As for pip, each with its bounds.
        name: Name of the tool; the folder of its environment begins with it.
        cache: Folder of all environments. None: TRAINWRIGHT_TOOLS, else trainwright/tools in the user's cache folder.
        system_packages: Whether the packages of this environment are visible in it, so that a large one, as torch, is reused.
        timeout_seconds: How long building may take, waiting for another process that builds the same one included.

    Raises ToolUnavailable, which says what to do; BadToolInput for a malformed name or requirement.
    """
    if not _NAME.fullmatch(name):
        raise BadToolInput(f"{name!r} is not the name of a tool; expected lower-case letters, digits and dashes")
    if all(is_installed(requirement) for requirement in parse_requirements(requirements)):
        return Path(sys.executable)
    receipt = _receipt(requirements, system_packages)
    folder = _cache_folder(cache) / f"{name}-{hashlib.sha256(receipt).hexdigest()[:16]}"
    try:
        with disk_errors(folder):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_own(folder.parent)
            if _is_whole(folder, receipt):
                return _python(folder)
            with file_lock(lock_path(folder), timeout=timeout_seconds):
                if not _is_whole(folder, receipt):
                    _build(folder, requirements, receipt, system_packages=system_packages, timeout_seconds=timeout_seconds)
    except StorageError as error:
        raise ToolUnavailable(
            f"the environment of {name} cannot be built: {error}; set {CACHE_VARIABLE} to a folder on a larger disk, "
            f"or install {_listed(requirements)} into the image"
        ) from error
    return _python(folder)


def _build(folder: Path, requirements: Sequence[str], receipt: bytes, *, system_packages: bool, timeout_seconds: float) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        install(folder, _python(folder), requirements, system_packages=system_packages, timeout_seconds=timeout_seconds)
        write_bytes(folder / _RECEIPT, receipt)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it may have filled the disk
        raise


def _is_whole(folder: Path, receipt: bytes) -> bool:
    """Whether the environment was finished for these requirements, and its interpreter still runs."""
    try:
        if (folder / _RECEIPT).read_bytes() != receipt:
            return False
        _require_own(folder)
        return subprocess.run([_python(folder), "-I", "-c", ""], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):  # it is made anew
        return False


def _require_own(folder: Path) -> None:
    """Raise ToolUnavailable if another user could have put programs there. A file made there shows how this user looks on a volume."""
    shown = os.lstat(folder)
    owners = {0, os.geteuid()}
    if shown.st_uid not in owners and os.access(folder, os.W_OK):
        with tempfile.TemporaryFile(dir=folder) as mine:
            owners.add(os.fstat(mine.fileno()).st_uid)
    if not stat.S_ISDIR(shown.st_mode) or shown.st_uid not in owners:
        raise ToolUnavailable(f"{folder} is not a folder of this user; set {CACHE_VARIABLE} to another one")


def _cache_folder(cache: Path | None) -> Path:
    if cache is not None:
        return cache.absolute()
    if given := os.environ.get(CACHE_VARIABLE, ""):
        return Path(given).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME", "") or "~/.cache"
    try:
        return Path(home, "trainwright", "tools").expanduser().absolute()
    except RuntimeError:  # no home, as for a user id without an entry in a container
        return Path(tempfile.gettempdir(), f"trainwright-tools-{os.geteuid()}")


def _receipt(requirements: Sequence[str], system_packages: bool) -> bytes:
    content = {
        "requirements": sorted(set(requirements)),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": sysconfig.get_platform(),
        "system_packages": sys.prefix if system_packages else "",
    }
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _listed(requirements: Sequence[str]) -> str:
    return ", ".join(repr(each) for each in requirements)


def parse_requirements(requirements: Iterable[str]) -> list[Requirement]:
    """Return the requirements. Raises BadToolInput for one that is malformed."""
    parsed = []
    for text in requirements:
        try:
            parsed.append(Requirement(text))
        except InvalidRequirement as error:
            raise BadToolInput(f"{text!r} is not a requirement: {str(error).splitlines()[0]}") from None
    return parsed


def is_installed(requirement: Requirement) -> bool:
    """Whether this environment satisfies a requirement, with what its extras need. Dependencies of packages are not followed."""
    return _is_satisfied(requirement, set())


def _is_satisfied(requirement: Requirement, seen: set[tuple[str, frozenset[str]]]) -> bool:
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    if requirement.url is not None:  # nothing says that the installed one is of that address
        return False
    key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
    if key in seen:
        return True
    seen.add(key)
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    if not requirement.specifier.contains(found.version, prereleases=True):
        return False
    provided = {canonicalize_name(extra) for extra in found.metadata.get_all("Provides-Extra") or ()}
    if not {canonicalize_name(extra) for extra in requirement.extras} <= provided:
        return False
    return all(_is_satisfied(needed, seen) for needed in _needed_by_extras(found, requirement.extras))


def _needed_by_extras(found: importlib.metadata.Distribution, extras: Iterable[str]) -> Iterable[Requirement]:
    for text in found.requires or ():
        needed = Requirement(text)
        marker = needed.marker
        if marker is None or marker.evaluate({"extra": ""}):  # of the package itself, which was installed with it
            continue
        if any(marker.evaluate({"extra": extra}) for extra in extras):
            needed.marker = None
            yield needed
