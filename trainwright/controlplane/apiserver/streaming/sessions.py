"""What exec, attach and port-forward ask of a node; it hands in something with the shape of `Sessions`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from trainwright.api.errors import ApiError, BadRequest
from trainwright.api.kinds import NODE
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.wire.api_errors import not_found

STDOUT, STDERR = 1, 2
"""The numbers of a session's outputs, which are also those of their channels."""


class ContainerNotFound(ApiError):
    """The container is there by name, but it does not run."""

    def __init__(self, container: str):
        super().__init__(f'Internal error occurred: unable to upgrade connection: container not found ("{container}")')


@dataclass(frozen=True)
class Wanted:
    """The streams that a client asks for."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class Session(Protocol):
    """A command that runs in a container, or a container that is listened to. Belongs to one event loop."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next output, with STDOUT or STDERR; None when there will be no more. Nothing is read ahead without bound."""
        ...

    async def write(self, data: bytes) -> None:
        """Send to standard input; returns when there is room for more. What nobody reads any more is dropped."""
        ...

    async def close_stdin(self) -> None: ...

    def resize(self, width: int, height: int) -> None:
        """The client's terminal has another size; means nothing without one."""
        ...

    async def exit_code(self) -> int:
        """After the last output: how the command ended; 0 for a container that was listened to."""
        ...

    async def end(self) -> None:
        """Let go: a command that still runs is ended, with its process group. May be called again."""
        ...


class Sessions(Protocol):
    """A node's containers, to be entered. The checks raise ContainerNotFound or another ApiError, before anything has begun."""

    def check_exec(self, pod: Obj, container: str) -> None:
        """Whether a command could be started in the container."""
        ...

    def check_attach(self, pod: Obj, container: str, wanted: Wanted) -> None:
        """Whether the container could be listened to, and what is wanted of it be had."""
        ...

    def check_forward(self, pod: Obj) -> None:
        """Whether a connection could be made to a port of the pod."""
        ...

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: Wanted) -> Session:
        """Start a command in a running container."""
        ...

    async def attach(self, pod: Obj, container: str) -> Session:
        """Listen to a running container from now on."""
        ...

    async def connect(self, pod: Obj, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of the pod. Raises OSError where nobody listens."""
        ...


class NoSessions:
    """For a server without a node: there are no containers."""

    def check_exec(self, pod: Obj, container: str) -> None:
        raise self._no_node(pod)

    def check_attach(self, pod: Obj, container: str, wanted: Wanted) -> None:
        raise self._no_node(pod)

    def check_forward(self, pod: Obj) -> None:
        raise self._no_node(pod)

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: Wanted) -> Session:
        raise self._no_node(pod)

    async def attach(self, pod: Obj, container: str) -> Session:
        raise self._no_node(pod)

    async def connect(self, pod: Obj, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise self._no_node(pod)

    def _no_node(self, pod: Obj) -> ApiError:
        return not_found(NODE, str((pod.get("spec") or {}).get("nodeName") or ""))


def check_assigned(pod: Obj, name: str) -> None:
    """Raises BadRequest for a pod that no node has."""
    if not (pod.get("spec") or {}).get("nodeName"):
        raise BadRequest(f"pod {name} does not have a host assigned")
