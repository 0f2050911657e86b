"""Exec, attach and port-forward for the containers of this node."""

from __future__ import annotations

import asyncio
import logging

from anyio.to_thread import run_sync

from trainwright.api import names
from trainwright.api.errors import ApiError, BadRequest
from trainwright.api.objects import Obj, name_of, named, namespace_of, uid_of
from trainwright.controlplane.apiserver.streaming.sessions import CommandRequest, ContainerNotFound, Session
from trainwright.controlplane.node.container import RUN_MARK, ContainerRun, latest_run, run_mark
from trainwright.controlplane.node.container_context import NodeServices, create_context, rendezvous_port
from trainwright.controlplane.node.expansion import LOOPBACK
from trainwright.controlplane.node.sessions.attach_session import AttachSession
from trainwright.controlplane.node.sessions.exec_session import ExecSession
from trainwright.controlplane.node.sessions.kubectl_cp import tar_command
from trainwright.controlplane.node.volumes.references import ConfigError, VolumeError

_BUFFER = 64 * 1024
log = logging.getLogger(__name__)


class NodeSessions:
    """Implements the API server's `Sessions`."""

    def __init__(self, services: NodeServices):
        self._services = services

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: CommandRequest) -> Session:
        run = self._running(pod, container)
        folder = self._services.pods_folder / uid_of(pod)
        try:
            context = await run_sync(create_context, pod, _spec_of(pod, container), run, folder, self._services)
            more = {RUN_MARK: run_mark(run, uid_of(pod))} | (
                {"TERM": "xterm"} if wanted.tty and "TERM" not in context.env else {}
            )
            argv = tar_command(command, context.mounts, folder / "links" / container) or [
                context.rewrite(word) for word in command
            ]
            session = await ExecSession.start(argv, more, context, wanted, run)
        except (ConfigError, VolumeError, OSError) as error:
            raise ApiError(f"Internal error occurred: error executing command in container: {error}") from error
        log.info("command executed pod=%s/%s container=%s tty=%s", namespace_of(pod), name_of(pod), container, wanted.tty)
        return session

    async def attach(self, pod: Obj, container: str) -> Session:
        return AttachSession(self._running(pod, container))

    def check_exec(self, pod: Obj, container: str) -> None:
        self._running(pod, container)

    def check_attach(self, pod: Obj, container: str, wanted: CommandRequest) -> None:
        self._running(pod, container)
        if wanted.stdin or wanted.tty:
            what = "terminal" if wanted.tty else "standard input"
            raise BadRequest(
                f"container {container} has no {what}: this node runs containers without one; attach to the output only"
            )

    def check_forward(self, pod: Obj) -> None:
        if (pod.get("status") or {}).get("phase") != "Running":
            where = f"{name_of(pod)}_{namespace_of(pod)}"
            raise ApiError(f'Internal error occurred: unable to upgrade connection: pod not found ("{where}")')

    async def connect(self, pod: Obj, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the pod on this machine: at its own address, so that pods may share a port, else at 127.0.0.1.

        Trainer's rendezvous port is mapped to that of the JobSet. Raises OSError.
        """
        mapped = rendezvous_port(pod, self._services.ports) if port == names.RENDEZVOUS_PORT else None
        address = (pod.get("status") or {}).get("podIP") or LOOPBACK
        try:
            return await asyncio.open_connection(address, mapped or port, limit=_BUFFER)
        except ConnectionRefusedError:
            if address == LOOPBACK:
                raise
        return await asyncio.open_connection(LOOPBACK, mapped or port, limit=_BUFFER)

    def _running(self, pod: Obj, container: str) -> ContainerRun:
        run = latest_run(container, self._services.pods_folder / uid_of(pod))
        if run is None or run.termination() is not None:
            raise ContainerNotFound(container)
        return run


def _spec_of(pod: Obj, container: str) -> Obj:
    spec = pod["spec"]
    found = named(spec.get("containers"), container) or named(spec.get("initContainers"), container)
    if found is None:
        raise ContainerNotFound(container)
    return found
