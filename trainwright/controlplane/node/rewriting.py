"""What a container would see and a process on the host does not: mount paths and pod names, rewritten in its command and variables.

Without containers `/workspace` is no folder of the host, `job-node-0-0.job` no host name and port 29500 not private.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api import names

LOOPBACK = "127.0.0.1"
_PORT_VARIABLES = ("PET_MASTER_PORT", "MASTER_PORT", "DMLC_TRACKER_PORT")


@dataclass(frozen=True)
class Rewriting:
    """`mounts` are `(path in the container, path on the host)`; `subdomain` is that of the pod's JobSet.

    `port` replaces Trainer's fixed rendezvous port, which two jobs on one machine would share.
    """

    mounts: tuple[tuple[str, Path], ...] = ()
    subdomain: str = ""
    namespace: str = "default"
    port: int | None = None
    _rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for path, host in sorted(self.mounts, key=lambda mount: len(mount[0]), reverse=True):
            self._rules.append((_path_pattern(path), lambda match, host=host: str(host)))  # type: ignore[misc]
        if self.subdomain:
            dns = rf"(?<![\w.-])[a-z0-9][a-z0-9-]*\.{re.escape(self.subdomain)}"
            dns += rf"(?:\.{re.escape(self.namespace)}(?:\.svc(?:\.cluster\.local)?)?)?(:{names.RENDEZVOUS_PORT}(?!\d))?(?![\w-]|\.\w)"
            self._rules.append((re.compile(dns), self._address))

    def text(self, text: str) -> str:
        """A command word or a variable's value as the process needs it."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text

    def variables(self, variables: dict[str, str]) -> dict[str, str]:
        """The variables with the rendezvous port replaced where they carry it alone."""
        if self.port is None:
            return variables
        fixed = str(names.RENDEZVOUS_PORT)
        return {k: str(self.port) if k in _PORT_VARIABLES and v == fixed else v for k, v in variables.items()}

    def host_path(self, path: str) -> Path | None:
        """Where a path of the container lies on the host, or None outside all mounts."""
        for mount, host in sorted(self.mounts, key=lambda entry: len(entry[0]), reverse=True):
            if path == mount or path.startswith(mount.rstrip("/") + "/"):
                return host / path[len(mount) :].lstrip("/")
        return None

    def _address(self, match: re.Match[str]) -> str:
        return f"{LOOPBACK}:{self.port or names.RENDEZVOUS_PORT}" if match[1] else LOOPBACK


def _path_pattern(path: str) -> re.Pattern[str]:
    """A mount path as a whole path or the beginning of one, but not inside another path or word; `file://` may stand before it."""
    return re.compile(rf"(?:(?<=file://)|(?<![\w./~-])){re.escape(path.rstrip('/'))}(?=/|$|[^\w.-])")
