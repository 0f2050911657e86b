"""Entering this node's containers: commands beside their own, their output as it comes, connections to their ports."""

from __future__ import annotations

import asyncio
import logging

from anyio.to_thread import run_sync

from trainwright.api import names
from trainwright.api.errors import ApiError, BadRequest
from trainwright.api.objects import Obj, name_of, named, namespace_of, uid_of
from trainwright.controlplane.apiserver.sessions import ContainerNotFound, Session, Wanted
from trainwright.controlplane.node.attached import Attached
from trainwright.controlplane.node.container import EXEC_MARK, ContainerRun, exec_mark, latest_run
from trainwright.controlplane.node.copying import archive_of
from trainwright.controlplane.node.executed import Executed
from trainwright.controlplane.node.rewriting import LOOPBACK
from trainwright.controlplane.node.surroundings import NodeServices, rendezvous_port, surroundings
from trainwright.controlplane.node.volumes import VolumeError

_BUFFER = 64 * 1024
log = logging.getLogger(__name__)


class NodeSessions:
    """Implements the API server's `Sessions`."""

    def __init__(self, services: NodeServices):
        self._services = services

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: Wanted) -> Session:
        run = self._running(pod, container)
        folder = self._services.pods_folder / uid_of(pod)
        try:
            found = await run_sync(surroundings, pod, _spec_of(pod, container), folder, self._services)
            env = {**found.env, EXEC_MARK: exec_mark(run, uid_of(pod))}
            argv = archive_of(command, found.mounts, folder / "links" / container) or [found.rewrite(word) for word in command]
            session = await Executed.start(argv, env, found.cwd, wanted, run)
        except (VolumeError, OSError) as error:
            raise ApiError(f"Internal error occurred: error executing command in container: {error}") from error
        log.info("command executed pod=%s/%s container=%s tty=%s", namespace_of(pod), name_of(pod), container, wanted.tty)
        return session

    async def attach(self, pod: Obj, container: str) -> Session:
        return Attached(self._running(pod, container))

    def check_exec(self, pod: Obj, container: str) -> None:
        self._running(pod, container)

    def check_attach(self, pod: Obj, container: str, wanted: Wanted) -> None:
        self._running(pod, container)
        if wanted.stdin or wanted.tty:
            what = "terminal" if wanted.tty else "standard input"
            raise BadRequest(
                f"container {container} has no {what} to attach to: this node runs containers without; attach to its output alone"
            )

    def check_forward(self, pod: Obj) -> None:
        if (pod.get("status") or {}).get("phase") != "Running":
            where = f"{name_of(pod)}_{namespace_of(pod)}"
            raise ApiError(f'Internal error occurred: unable to upgrade connection: pod not found ("{where}")')

    async def connect(self, pod: Obj, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The pod's processes listen on this machine; Trainer's rendezvous port is another for each JobSet."""
        mapped = rendezvous_port(pod, self._services.ports) if port == names.RENDEZVOUS_PORT else None
        return await asyncio.open_connection(LOOPBACK, mapped or port, limit=_BUFFER)

    def _running(self, pod: Obj, container: str) -> ContainerRun:
        run = latest_run(container, self._services.pods_folder / uid_of(pod))
        if run is None or run.exited() is not None:
            raise ContainerNotFound(container)
        return run


def _spec_of(pod: Obj, container: str) -> Obj:
    spec = pod["spec"]
    found = named(spec.get("containers"), container) or named(spec.get("initContainers"), container)
    if found is None:
        raise ContainerNotFound(container)
    return found
