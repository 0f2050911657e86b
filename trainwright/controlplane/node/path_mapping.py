"""Maps mount paths and pod host names in commands and variables to those of the host.

Without containers, `/workspace` is not a folder, `job-node-0-0.job` does not resolve, and port 29500 is shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api import names
from trainwright.controlplane.node.expansion import substituted

LOOPBACK = "127.0.0.1"
_PORT_VARIABLES = ("PET_MASTER_PORT", "MASTER_PORT", "DMLC_TRACKER_PORT")


@dataclass(frozen=True)
class PathMapping:
    """`mounts` are `(path in the container, path on the host)`; `subdomain` is that of the pod's JobSet.

    `port` replaces Trainer's fixed rendezvous port, which all jobs on this machine would share. Where that port follows the name of a
    host, it is replaced by what `port_of_host` returns for the short name.
    """

    mounts: tuple[tuple[str, Path], ...] = ()
    subdomain: str = ""
    namespace: str = "default"
    port: int | None = None
    port_of_host: Callable[[str], int | None] | None = None
    keeps_names: bool = False
    """The pod's hosts file has the names of the others: only the port is mapped."""
    _rules: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for path, host in sorted(self.mounts, key=lambda mount: len(mount[0]), reverse=True):
            self._rules.append((_path_pattern(path), lambda match, host=host: str(host)))  # type: ignore[misc]
        if self.subdomain:
            dns = rf"(?<![\w.-])[a-z0-9][a-z0-9-]*\.{re.escape(self.subdomain)}"
            dns += rf"(?:\.{re.escape(self.namespace)}(?:\.svc(?:\.cluster\.local)?)?)?(:{names.RENDEZVOUS_PORT}(?!\d))?(?![\w-]|\.\w)"
            self._rules.append((re.compile(dns), self._address))

    def rewrite(self, text: str) -> str:
        """Map paths and host names in a command word or a variable's value. Raises ArgumentsTooLong."""
        for pattern, replacement in self._rules:
            text = substituted(text, pattern.finditer(text), replacement, "a text with paths of mounts")
        return text

    def variables(self, variables: dict[str, str]) -> dict[str, str]:
        """Replace the rendezvous port in variables that contain only it."""
        if self.port is None:
            return variables
        fixed = str(names.RENDEZVOUS_PORT)
        return {k: str(self.port) if k in _PORT_VARIABLES and v == fixed else v for k, v in variables.items()}

    def host_path(self, path: str) -> Path | None:
        """Return the host path of a container path, or None outside of all mounts."""
        for mount, host in sorted(self.mounts, key=lambda entry: len(entry[0]), reverse=True):
            if path == mount or path.startswith(mount.rstrip("/") + "/"):
                return host / path[len(mount) :].lstrip("/")
        return None

    def _address(self, match: re.Match[str]) -> str:
        name = match[0].removesuffix(match[1] or "")
        host = name if self.keeps_names else LOOPBACK
        if not match[1]:
            return host
        port = self.port_of_host(name.partition(".")[0]) if self.port_of_host is not None else self.port
        return f"{host}:{port or names.RENDEZVOUS_PORT}"


def _path_pattern(path: str) -> re.Pattern[str]:
    """Match a mount path as a path or its prefix, also after `file://`, but not inside another path or word."""
    return re.compile(rf"(?:(?<=file://)|(?<![\w./~-])){re.escape(path.rstrip('/'))}(?=/|$|[^\w.-])")
