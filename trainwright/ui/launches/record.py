"""The folder of a started fine-tuning: what was asked, what has happened, and a lock that its process holds.

Whoever holds the lock runs the chain, so a run is never started twice, and a process that was killed does not seem to run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainwright.api.times import now
from trainwright.storage.locks import is_held, try_lock
from trainwright.ui.private_file import write_private

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?")
_MAX_EVENTS_BYTES = 4 * 1024 * 1024
_MAX_LINE = 2000


class BadLaunch(ValueError):
    """A run id that cannot be the name of a folder, or a record that cannot be read."""


@dataclass(frozen=True)
class LaunchRequest:
    """What a process is started with. `host` is the API server of the page's cluster, and `kubeconfig` empty for that of the
    environment: the process makes sure that it leads there, since its current context may have changed."""

    run: str
    namespace: str
    parameters: dict[str, Any]
    host: str
    kubeconfig: str = ""
    mode: str = ""


class LaunchFolder:
    """The files of one run. Its name is the run id."""

    def __init__(self, root: Path, run: str):
        if not _NAME.fullmatch(run):
            raise BadLaunch(f"run: {run[:80]!r}: expected letters, digits, '-', '_' and '.', at most 128")
        self.path, self.run = root / run, run

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def _events(self) -> Path:
        return self.path / "events.jsonl"

    def write_request(self, request: LaunchRequest) -> None:
        """Create the folder with its request, readable only by its owner. Raises OSError."""
        write_private(self.path / "request.json", json.dumps(asdict(request)).encode())

    def request(self) -> LaunchRequest:
        """Return what was asked. Raises BadLaunch."""
        try:
            return LaunchRequest(**json.loads((self.path / "request.json").read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise BadLaunch(f"run {self.run}: its request cannot be read: {error}") from error

    def note(self, kind: str, **facts: Any) -> None:
        """Append an event. Raises OSError."""
        line = json.dumps({"at": now(), "type": kind, **facts}, ensure_ascii=False)
        with open(self._events, "a", encoding="utf-8", opener=_private) as file:
            file.write(line + "\n")

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events so far; a line that is not whole, as after a full disk, is passed over."""
        try:
            with open(self._events, "rb") as file:
                content = file.read(_MAX_EVENTS_BYTES)
        except FileNotFoundError:
            return
        for line in content.split(b"\n"):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("type"), str):
                yield event

    @contextmanager
    def running(self) -> Iterator[bool]:
        """Hold the lock, with the id of this process in it; yields False if another process holds it. Raises OSError."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(descriptor):
                yield False
                return
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield True
        finally:
            os.close(descriptor)

    def process(self) -> int | None:
        """Return the id of the process that holds the lock, 0 if it has not noted it yet; None if nobody does."""
        if not is_held(self.path / "lock"):
            return None
        noted = (self.path / "lock").read_bytes()[:20]
        return int(noted) if noted.isdigit() else 0


def cut(text: str) -> str:
    """Return a line that is short enough for a record."""
    return text[:_MAX_LINE]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
