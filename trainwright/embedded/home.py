"""The home directory of an embedded control plane, and the lock that ensures only one uses it.

The lock is a flock, which the operating system releases when its process ends, so it cannot become stale.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainwright.api.rules.token_life import DEFAULT_MAXIMUM
from trainwright.flock import is_held, try_lock

DEFAULT = "~/.trainwright"
VARIABLE = "TRAINWRIGHT_HOME"
_LOOK_SECONDS = 0.02


class HomeLocked(Exception):
    """Another control plane uses this home."""


@dataclass(frozen=True)
class Running:
    """The control plane running in a home. `controllers` are those that may be left out and are not; `gates` all feature gates.

    `token_seconds` is the longest life of service account tokens; `host_folders` are those that claims may choose; `page` is the
    address of the page.
    """

    pid: int
    port: int
    url: str
    started: str
    node: bool
    controllers: tuple[str, ...]
    durability: str
    gates: dict[str, bool]
    token_seconds: int = DEFAULT_MAXIMUM
    host_folders: tuple[str, ...] = ()
    page: str = ""

    def __post_init__(self) -> None:
        for name in ("controllers", "host_folders"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a list in JSON


@dataclass(frozen=True)
class Home:
    """A home directory and its files, accessible only by their owner."""

    path: Path

    @classmethod
    def chosen(cls, path: str | Path | None = None) -> Home:
        """The home at `path`; defaults to TRAINWRIGHT_HOME, then `~/.trainwright`."""
        return cls(Path(path or os.environ.get(VARIABLE) or DEFAULT).expanduser().absolute())

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def database(self) -> Path:
        return self.path / "state.db"

    @property
    def log(self) -> Path:
        return self.path / "controlplane.log"

    @property
    def credentials(self) -> Path:
        return self.path / "credentials"

    @property
    def authority(self) -> Path:
        """The certificates that the API server is verified with."""
        return self.credentials / "trusted.crt"

    @property
    def page_key(self) -> Path:
        """The key of one-time links to the page."""
        return self.credentials / "page.key"

    @property
    def node(self) -> Path:
        return self.path / "node"

    @property
    def claims(self) -> Path:
        return self.node / "claims"

    def make(self) -> None:
        """Create the directory with mode 0700. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

    def lock(self) -> int:
        """Lock the home; the returned file descriptor holds the lock until it is closed. Raises HomeTaken.

        Retries, because `is_locked` in another process also takes the lock for a moment.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        tries = 10
        while not try_lock(descriptor):
            tries -= 1
            if not tries:
                os.close(descriptor)
                raise HomeLocked(f"another control plane runs in {self.path}; stop it with `trainwright down --home {self.path}`")
            time.sleep(_LOOK_SECONDS)
        return descriptor

    def is_locked(self) -> bool:
        """Whether a control plane holds the lock."""
        return is_held(self.path / "lock")

    def running(self) -> Running | None:
        """The control plane of this home if it is ready, otherwise None."""
        if not self.is_locked():
            return None
        try:
            return Running(**json.loads((self.path / "running.json").read_bytes()))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):  # not announced yet, or by another version
            return None

    def last_port(self) -> int:
        """The port of the last run, or 0. It is reused because pods that survive a crash keep reporting to it."""
        return self._number("port")

    def last_page_port(self) -> int:
        """The port of the page in the last run, or 0. It is reused because browsers may show the page, or have it bookmarked."""
        return self._number("page-port")

    def announce(self, running: Running) -> None:
        """Announce that this control plane is ready; the last step of startup."""
        self._write("port", str(running.port))
        if running.page:
            self._write("page-port", str(urlsplit(running.page).port))
        self._write("running.json", json.dumps(vars(running)))

    def withdraw(self) -> None:
        (self.path / "running.json").unlink(missing_ok=True)

    def _number(self, name: str) -> int:
        try:
            return int((self.path / name).read_text("ascii"))
        except (FileNotFoundError, ValueError):  # the first run, or damaged: any free port
            return 0

    def _write(self, name: str, text: str) -> None:
        temporary = self.path / f".{name}.new"
        with open(temporary, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
        os.replace(temporary, self.path / name)
