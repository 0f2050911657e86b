"""What changes in commands and variables: `$(NAME)` is expanded, and paths and host names of the container become those of the host.

References may refer to references: 40 lines of `$(A)$(A)` would take terabytes, so sizes are checked while texts are expanded.
Source: third_party/forked/golang/expansion of Kubernetes. Paths and names are mapped because, without containers, `/workspace` is not
a folder, `job-node-0-0.job` does not resolve, and port 29500 is shared.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from trainwright.api import names

MAX_TEXT = 128 * 1024
"""Bytes of a variable with its name, or of a word: MAX_ARG_STRLEN of execve(2)."""
MAX_TEXTS = 2 * 1024 * 1024
"""Bytes of all variables and words: ARG_MAX with the usual stack."""
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ESCAPED = re.compile(r"\$(\$)")
LOOPBACK = "127.0.0.1"
_PORT_VARIABLES = ("PET_MASTER_PORT", "MASTER_PORT", "DMLC_TRACKER_PORT")


class ArgumentsTooLong(OSError):
    """No program can be given these variables or words, as execve(2) would say."""

    def __init__(self, what: str, most: int):
        super().__init__(errno.E2BIG, f"argument list too long: {what} of more than {most} bytes")

    def __str__(self) -> str:
        return str(self.strerror)


def expand_references(text: str, variables: Mapping[str, str], what: str = "a text") -> str:
    """Replace `$(NAME)` by a variable's value.

    `$$` is an escaped `$`; a reference ends at the next `)`; unknown names and all other text are kept. `what` is for messages.
    Raises ArgumentsTooLong.
    """

    def value_of(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return substituted(text, _matches(text), value_of, what)


def _matches(text: str) -> Iterator[re.Match[str]]:
    """Yield references and escaped `$`. After the last `)` there are no references: each `$(` would be searched to the end."""
    end = text.rfind(")") + 1
    return chain(_REFERENCE.finditer(text, 0, end), _ESCAPED.finditer(text, end))


def substituted(text: str, matches: Iterable[re.Match[str]], value_of: Callable[[re.Match[str]], str], what: str) -> str:
    """Replace matches in a text by their values. Raises ArgumentsTooLong as soon as the result would be too long."""
    parts: list[str] = []
    end = size = 0
    for match in matches:
        value = value_of(match)
        parts += (text[end : match.start()], value)
        end, size = match.end(), size + match.start() - end + len(value)
        if size > MAX_TEXT:
            raise ArgumentsTooLong(what, MAX_TEXT)
    return "".join(parts) + text[end:]


def expand_words(words: Iterable[str], variables: Mapping[str, str], rewrite: Callable[[str], str] = str) -> list[str]:
    """Expand the words of a command, and apply `rewrite` to each. Raises ArgumentsTooLong."""
    room, found = Room(), list[str]()
    for number, word in enumerate(words):
        found.append(rewrite(expand_references(word, variables, f"word {number} of the command")))
        room.take(found[-1], f"word {number} of the command")
    return found


class Room:
    """The rest of MAX_TEXTS."""

    def __init__(self) -> None:
        self._left = MAX_TEXTS

    def take(self, text: str, what: str) -> None:
        """Take the bytes of a text, and of the NUL at its end. Raises ArgumentsTooLong."""
        size = len(os.fsencode(text)) + 1
        self._left -= size
        if size > MAX_TEXT:
            raise ArgumentsTooLong(what, MAX_TEXT)
        if self._left < 0:
            raise ArgumentsTooLong("all", MAX_TEXTS)


def references_in(text: str) -> list[str]:
    """Return the names that a text refers to, in order."""
    return [match[1] for match in _matches(text) if match[0] != "$$"]


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
            # As a path or its prefix, also after `file://`, but not inside another path or word.
            pattern = re.compile(rf"(?:(?<=file://)|(?<![\w./~-])){re.escape(path.rstrip('/'))}(?=/|$|[^\w.-])")
            self._rules.append((pattern, lambda match, host=host: str(host)))  # type: ignore[misc]  # mypy: a default
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
            return variables  # not a pod of a JobSet: no port is mapped
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
            return host  # a name without the rendezvous port
        port = self.port_of_host(name.partition(".")[0]) if self.port_of_host is not None else self.port
        return f"{host}:{port or names.RENDEZVOUS_PORT}"
