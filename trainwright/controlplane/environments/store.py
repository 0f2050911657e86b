"""The environments of this user on disk, for all clusters: each in a folder named for its content, with a record written last."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.api.times import now
from trainwright.controlplane.environments.definition import EnvironmentDefinition
from trainwright.controlplane.environments.installer import (
    Installer,
    InstallFailed,
    PackageRefused,
    Progress,
    Stopped,
    check_space,
)
from trainwright.controlplane.gpus import gpu_count
from trainwright.flock import try_lock

VARIABLE = "TRAINWRIGHT_ENVIRONMENTS"
RECORD = "trainwright.json"
_LAYOUT = 1
"""Part of the digest: another number makes all environments anew."""
_PACKAGE = Path(__file__).parents[2]
_SHIMS = Path(__file__).parent / "shims"
_SHIMS_PACKAGE = "trainwright_shims"
log = logging.getLogger(__name__)


class EnvironmentFailed(Exception):
    """An environment could not be prepared. The message says why, what is missing, and what to do."""


@dataclass(frozen=True)
class Prepared:
    """An environment that is ready. `packages` are its contents as requirements."""

    name: str
    path: Path
    created: str
    seconds: float
    packages: tuple[str, ...]


@dataclass(frozen=True)
class EnvironmentStore:
    """Environments below `folder`. Several processes may use it at once."""

    folder: Path

    @classmethod
    def chosen(cls) -> EnvironmentStore:
        """The store at TRAINWRIGHT_ENVIRONMENTS, else in the user's cache."""
        if given := os.environ.get(VARIABLE):
            return cls(Path(given).expanduser().absolute())
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return cls(Path(cache).expanduser().absolute() / "trainwright" / "environments")

    def place(self, definition: EnvironmentDefinition) -> Path:
        """Return the folder of an environment, which may not exist. It changes with the definition, its lock, Python and the GPU."""
        parts = {
            "layout": _LAYOUT,
            "requirements": requirements_here(definition),
            "lock": definition.lock,
            "python": [sys.version_info[:2], os.path.realpath(sys.base_prefix), platform.machine()],
            "package": str(_PACKAGE.parent) if definition.includes_trainwright else "",
            "gpu": has_gpu(),
        }
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
        return self.folder / f"{definition.name}-{digest}"

    def find(self, definition: EnvironmentDefinition) -> Prepared | None:
        """Return an environment if it is ready."""
        return _read(self.place(definition))

    def prepared(self) -> list[Prepared]:
        """Return all environments that are ready, those of former definitions too."""
        if not self.folder.is_dir():
            return []  # none was ever prepared
        found = (_read(path) for path in sorted(self.folder.iterdir()) if path.is_dir())
        return [each for each in found if each is not None]

    def prepare(
        self, definition: EnvironmentDefinition, progress: Progress = lambda _: None, stop: threading.Event | None = None
    ) -> Prepared:
        """Return an environment, which is made if it is not ready. `stop` ends that.

        Raises EnvironmentFailed, and Stopped once `stop` is set.
        """
        place, stop = self.place(definition), stop or threading.Event()
        try:
            self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            with _locked(_lock_of(place), progress, stop) as lock:
                ready = self.find(definition)
                return ready or self._make(definition, place, Installer(progress, stop, (lock,)))
        except InstallFailed as error:
            raise EnvironmentFailed(f"the environment {definition.name} cannot be prepared: {error}") from error
        except OSError as error:
            raise EnvironmentFailed(
                f"the environment {definition.name} cannot be prepared in {self.folder}: {error.strerror or error}"
            ) from error

    def renew_shims(self, ready: Prepared) -> None:
        """Bring the shims of an environment up to date, which another version of this package may have made. Raises OSError."""
        install_shims(_site_packages(ready.path))

    def remove(self, path: Path) -> None:
        """Remove an environment. A process that prepares it is waited for. Raises OSError."""
        with _locked(_lock_of(path), lambda _: None, threading.Event()):
            (path / RECORD).unlink(missing_ok=True)  # first: what is left is not taken for an environment
            shutil.rmtree(path)
            _lock_of(path).unlink(missing_ok=True)  # while it is held: who waits for it sees that it is gone

    def _make(self, definition: EnvironmentDefinition, place: Path, installer: Installer) -> Prepared:
        """Make an environment in its place. Raises InstallFailed, Stopped, OSError."""
        check_space(self.folder, definition.mebibytes, "it")
        started = time.monotonic()
        if place.exists():
            shutil.rmtree(place)  # left by a process that was killed
        log.info("event=environment_started name=%s path=%s", definition.name, place)
        try:
            installer.create(place)
            self._install(definition, place, installer)
            install_shims(_site_packages(place))
            if definition.includes_trainwright:
                (_site_packages(place) / "trainwright.pth").write_text(f"{_PACKAGE.parent}\n", "utf-8")
            packages = tuple(installer.packages(place))
            ready = Prepared(definition.name, place, now(), round(time.monotonic() - started, 1), packages)
            content = {name: value for name, value in asdict(ready).items() if name != "path"}
            temporary = place / f"{RECORD}.new"
            temporary.write_text(json.dumps(content, indent=1), "utf-8")
            os.replace(temporary, place / RECORD)
        except BaseException:  # also at the end of this process: nothing incomplete is left
            shutil.rmtree(place, ignore_errors=True)
            raise
        log.info("event=environment_ready name=%s seconds=%s packages=%d", definition.name, ready.seconds, len(packages))
        return ready

    def _install(self, definition: EnvironmentDefinition, place: Path, installer: Installer) -> None:
        wanted = requirements_here(definition)
        try:
            installer.install(place, wanted, definition.lock, has_gpu=has_gpu(), from_source=definition.from_source)
        except PackageRefused:
            raise  # it is not missing
        except InstallFailed as error:
            missing = installer.missing(wanted, place)
            if not missing:
                raise
            raise InstallFailed(
                f"{error}; not on this machine: {', '.join(missing)}. Once a package index is reachable, "
                f"run `trainwright environments prepare {definition.name}`"
            ) from error


def _read(place: Path) -> Prepared | None:
    try:
        found: dict[str, Any] = json.loads((place / RECORD).read_bytes())
        ready = Prepared(found["name"], place, found["created"], found["seconds"], tuple(found["packages"]))
    except FileNotFoundError:
        return None  # not made, or not completely: the record comes last
    except (OSError, ValueError, LookupError, TypeError) as error:  # another program may have written it
        log.warning("event=environment_unreadable path=%s error=%r", place, error)
        return None
    if not (place / "bin" / "python").exists():  # the interpreter that it was made with has been removed
        return None
    return ready


@contextmanager
def _locked(file: Path, progress: Progress, stop: threading.Event) -> Iterator[int]:
    """Hold the lock of an environment, and wait for it. Raises Stopped, OSError."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _wait_for(lock, progress, stop)
            if _is_at(file, lock):
                yield lock
                return  # else the environment was removed meanwhile, and the lock with it
        finally:
            os.close(lock)


def _wait_for(lock: int, progress: Progress, stop: threading.Event) -> None:
    is_told = False
    while not stop.is_set():
        if try_lock(lock):
            return
        if not is_told:
            is_told = True
            progress("another process prepares it")
        stop.wait(0.2)
    raise Stopped


def _is_at(file: Path, opened: int) -> bool:
    """Whether an open file is still the one at a path, which may have been removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(opened), file.stat())
    except FileNotFoundError:  # removed with its environment
        return False


def _lock_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.lock")


def _site_packages(place: Path) -> Path:
    return place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def requirements_here(definition: EnvironmentDefinition) -> tuple[str, ...]:
    """Return the requirements of an environment on this machine."""
    return definition.gpu_requirements if definition.gpu_requirements and has_gpu() else definition.requirements


@functools.cache
def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU; looked up once."""
    return gpu_count() > 0


def install_shims(site_packages: Path) -> None:
    """Copy the shims into an environment, or bring those there up to date. Interpreters may start meanwhile. Raises OSError."""
    target = site_packages / _SHIMS_PACKAGE
    target.mkdir(exist_ok=True)
    sources = {path.name: path.read_bytes() for path in sorted(_SHIMS.glob("*.py"))}
    for name in sorted(sources, key="__init__.py".__eq__):  # it names the others, so it comes last
        _replace_file(target / name, sources[name])
    for path in target.glob("*.py"):
        if path.name not in sources:
            path.unlink(missing_ok=True)
    _replace_file(site_packages / f"{_SHIMS_PACKAGE}.pth", f"import {_SHIMS_PACKAGE}\n".encode())


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a file at once, if its content is another one. Everyone may read it."""
    if path.is_file() and path.read_bytes() == content:
        return  # interpreters that start meanwhile see no change
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # containers of any user read it
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
