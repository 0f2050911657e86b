"""The folder of one run: its request, so that the same command resumes it, and whether it has finished."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.quickstart.locks import lock

_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")


class RunError(Exception):
    """The run cannot be started under that name; the message says what to do."""


@dataclass(frozen=True)
class Request:
    """What was asked for. Two commands with equal requests mean the same run."""

    orchestrator: str
    dataset: str
    model: str
    export: str
    settings: str
    nodes: int


@dataclass(frozen=True)
class RunFolder:
    """Names of what lies below `./runs/NAME`."""

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

    def take(self) -> int | None:
        """Make the run this process's own for as long as it lives; None when another process works on it."""
        return lock(self.path / ".lock")

    def result(self) -> dict[str, Any] | None:
        """What a finished run came to, or None."""
        return _read(self.path / "result.json")

    def finish(self, result: dict[str, Any]) -> None:
        _write(self.path / "result.json", result)

    def request(self) -> Request | None:
        content = _read(self.path / "request.json")
        try:
            return Request(**content) if content is not None else None
        except TypeError:  # of another version
            return None


def open_run(runs: Path, name: str, request: Request) -> RunFolder:
    """The folder for this request: the one of that name, else the newest unfinished one like it, else a new one.

    Raises RunError for a name that cannot be used or that stands for another request.
    """
    if name:
        if not _NAME.match(name):
            raise RunError(f"NAME={name}: use at most 40 lower case letters, digits and dashes")
        folder = RunFolder(runs / name)
        if folder.request() not in (None, request):
            raise RunError(f"{folder.path} is a run of another request; choose another NAME, or remove that folder")
    else:
        folder = _unfinished(runs, request) or RunFolder(runs / _next_name(runs))
    folder.workspace.mkdir(parents=True, exist_ok=True)
    _write(folder.path / "request.json", asdict(request))
    return folder


def _unfinished(runs: Path, request: Request) -> RunFolder | None:
    folders = [RunFolder(path) for path in sorted(runs.glob("finetune-*"), reverse=True)]
    return next((f for f in folders if f.result() is None and f.request() == request and not _is_taken(f)), None)


def _is_taken(folder: RunFolder) -> bool:
    descriptor = folder.take()
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _next_name(runs: Path) -> str:
    numbers = [int(match[1]) for path in runs.glob("finetune-*") if (match := re.match(r"^finetune-(\d+)$", path.name))]
    return f"finetune-{max(numbers, default=0) + 1:03d}"


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
