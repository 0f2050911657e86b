"""The protocols that a node implements for exec, attach and port-forward; with logs, all that is read from its pods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from trainwright.api.errors import ApiError, BadRequest
from trainwright.api.kinds import NODE
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.streaming.container_logs import Logs, NoLogs
from trainwright.controlplane.apiserver.wire.api_errors import not_found_error

STDOUT, STDERR = 1, 2
"""Output streams of a session; equal to their channel numbers."""


class ContainerNotFound(ApiError):
    """The container exists in the pod but is not running."""

    def __init__(self, container: str):
        super().__init__(f'Internal error occurred: unable to upgrade connection: container not found ("{container}")')


@dataclass(frozen=True)
class CommandRequest:
    """The streams that a client requests."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class Session(Protocol):
    """A command running in a container (exec), or an attached container. Belongs to one event loop."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next output with STDOUT or STDERR; None at the end. Reads ahead only a bounded amount."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to standard input; waits for buffer space. Dropped if the process no longer reads."""
        ...

    async def close_stdin(self) -> None: ...

    def resize(self, width: int, height: int) -> None:
        """Resize the terminal; ignored without one."""
        ...

    async def exit_code(self) -> int:
        """The exit code, available after the last output; 0 for attach."""
        ...

    async def end(self) -> None:
        """End the session; kills the process group of a running command. Idempotent."""
        ...


class Sessions(Protocol):
    """Opens sessions in a node's containers. The checks raise ContainerNotFound or another ApiError before a session starts."""

    def check_exec(self, pod: Obj, container: str) -> None:
        """Check that a command can be started in the container."""
        ...

    def check_attach(self, pod: Obj, container: str, wanted: CommandRequest) -> None:
        """Check that the container is running and supports the requested streams."""
        ...

    def check_forward(self, pod: Obj) -> None:
        """Check that connections to the pod are possible."""
        ...

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: CommandRequest) -> Session:
        """Start a command in a running container."""
        ...

    async def attach(self, pod: Obj, container: str) -> Session:
        """Attach to a running container; output starts now."""
        ...

    async def connect(self, pod: Obj, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the pod. Raises OSError if nothing listens on it."""
        ...


class NoSessions:
    """The sessions of a server without a node: always not found."""

    def check_exec(self, pod: Obj, container: str) -> None:
        raise self._no_node(pod)

    def check_attach(self, pod: Obj, container: str, wanted: CommandRequest) -> None:
        raise self._no_node(pod)

    def check_forward(self, pod: Obj) -> None:
        raise self._no_node(pod)

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: CommandRequest) -> Session:
        raise self._no_node(pod)

    async def attach(self, pod: Obj, container: str) -> Session:
        raise self._no_node(pod)

    async def connect(self, pod: Obj, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise self._no_node(pod)

    def _no_node(self, pod: Obj) -> ApiError:
        return not_found_error(NODE, str((pod.get("spec") or {}).get("nodeName") or ""))


def check_assigned(pod: Obj, name: str) -> None:
    """Raises BadRequest if the pod is not assigned to a node."""
    if not (pod.get("spec") or {}).get("nodeName"):
        raise BadRequest(f"pod {name} does not have a host assigned")


@dataclass(frozen=True)
class PodStreams:
    """The logs of pods, and the sessions in them; by default those of a server without a node."""

    logs: Logs = NoLogs()  # noqa: RUF009  (has no state)
    sessions: Sessions = NoSessions()  # noqa: RUF009  (has no state)
