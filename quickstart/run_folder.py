"""The folder of a run, with its request, so that the same command resumes it, and its result; and locks for concurrent commands.

Each run is used by one command, and the last one stops the shared cluster. The locks are file locks of the operating system and end
with their process, so there are no stale locks.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.flock import lock_descriptor, try_lock

_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")


class RunError(Exception):
    """The run cannot be started; the message says what to do."""


@dataclass(frozen=True)
class Request:
    """The options of a run. Two commands with equal requests use the same run."""

    orchestrator: str
    dataset: str
    model: str
    export: str
    settings: str
    nodes: int
    columns: str = ""
    layout: str = ""


@dataclass(frozen=True)
class RunFolder:
    """The files below `./runs/NAME`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def workspace(self) -> Path:
        return self.path / "workspace"

    @property
    def export(self) -> Path:
        return self.path / "export"

    @property
    def pipeline_root(self) -> Path:
        return self.path / "pipeline"

    @property
    def log(self) -> Path:
        return self.path / "pipeline.log"

    @property
    def loss_curve(self) -> Path:
        return self.path / "loss-curve.png"

    def lock(self) -> int | None:
        """Lock the run for this process until it ends; None if another process has locked it."""
        return lock(self.path / ".lock")

    def result(self) -> dict[str, Any] | None:
        """The result of a finished run, or None."""
        return _read(self.path / "result.json")

    def finish(self, result: dict[str, Any]) -> None:
        _write(self.path / "result.json", result)

    def request(self) -> Request | None:
        content = _read(self.path / "request.json")
        try:
            return Request(**content) if content is not None else None
        except TypeError:  # written by another version
            return None


def check_name(name: str) -> None:
    """Raise RunError for a name that cannot be that of a run; an empty one means the default."""
    if name and not _NAME.fullmatch(name):
        raise RunError(f"NAME={name!r}: use at most 40 lower case letters, digits and dashes")


def open_run(runs: Path, name: str, request: Request) -> RunFolder:
    """The folder for this request: the named one, else the newest unfinished run with an equal request, else a new one.

    Only this user can read it. Raises RunError for a run of that name with another request.
    """
    if name:
        folder = RunFolder(runs / name)
        if folder.request() not in (None, request):
            raise RunError(f"{folder.path} is a run of another request; choose another NAME, or remove that folder")
    else:
        numbers = [int(match[1]) for path in runs.glob("finetune-*") if (match := re.match(r"^finetune-(\d+)$", path.name))]
        folder = _unfinished(runs, request) or RunFolder(runs / f"finetune-{max(numbers, default=0) + 1:03d}")
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.path.chmod(0o700)
    folder.workspace.mkdir(exist_ok=True)
    _write(folder.path / "request.json", asdict(request))
    return folder


def _unfinished(runs: Path, request: Request) -> RunFolder | None:
    folders = [RunFolder(path) for path in sorted(runs.glob("finetune-*"), reverse=True)]
    return next((f for f in folders if f.result() is None and f.request() == request and not _is_locked(f)), None)


def _is_locked(folder: RunFolder) -> bool:
    descriptor = folder.lock()
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    os.replace(temporary, path)


def lock(path: Path) -> int | None:
    """A descriptor that holds an exclusive lock until it is closed, or None if another process holds it."""
    descriptor = _opened(path)
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def share(path: Path) -> int:
    """A descriptor that holds a shared lock. Waits for an exclusive lock, which is only held briefly."""
    descriptor = _opened(path)
    lock_descriptor(descriptor, shared=True)
    return descriptor


def release_share(path: Path, descriptor: int) -> int | None:
    """Release a shared lock. If it was the last one, returns a descriptor with an exclusive lock; others wait until it is closed."""
    os.close(descriptor)
    return lock(path)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
