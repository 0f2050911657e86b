"""Exec, attach and port-forward for the containers of this node, and commands that pods of an MPI job run in each other.

`kubectl cp` from a volume runs tar in the container and expects the container's paths in the archive. Where the files have another
path on the host, tar reads them through a link with the container's path. A command of an MPI job gets the client's own files as its
standard streams: nothing is copied, and a reader that is slow makes it wait.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from trainwright.api import names
from trainwright.api.errors import ApiError, BadRequest
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, is_deleting, name_of, named, namespace_of, uid_of
from trainwright.controlplane.apiserver.streaming.sessions import STDERR, STDOUT, CommandRequest, ContainerNotFound, Session
from trainwright.controlplane.node.container import RUN_MARK, ContainerRun, latest_run, run_mark
from trainwright.controlplane.node.container_context import NodeServices, create_context, rendezvous_port
from trainwright.controlplane.node.container_logs import entries, read_blocks, tail_position
from trainwright.controlplane.node.expansion import LOOPBACK
from trainwright.controlplane.node.mpi import session
from trainwright.controlplane.node.mpi.job_sockets import Job, Refused
from trainwright.controlplane.node.mpi.stand_in import has_key
from trainwright.controlplane.node.network.host_names import pod_domain, short_host_name
from trainwright.controlplane.node.sessions.exec_session import ExecSession
from trainwright.controlplane.node.supervisor.child_command import ChildCommand, child_command
from trainwright.controlplane.node.volumes.references import ConfigError, VolumeError

_BUFFER = 64 * 1024
_READER_THREADS = anyio.CapacityLimiter(64)
"""Maximum number of threads that poll for output at the same time; each poll is short."""
_ARCHIVE = ["tar", "cf", "-"]
REMOTE_COMMAND_MARK = "TRAINWRIGHT_REMOTE_COMMAND"
"""A variable of the processes of a command."""
log = logging.getLogger(__name__)


class NodeSessions:
    """Implements the API server's `Sessions`."""

    def __init__(self, services: NodeServices):
        self._services = services

    async def exec(self, pod: Obj, container: str, command: list[str], wanted: CommandRequest) -> Session:
        run = self._running(pod, container)
        folder = self._services.pods_folder / uid_of(pod)
        spec = named(pod["spec"].get("containers"), container) or named(pod["spec"].get("initContainers"), container)
        if spec is None:
            raise ContainerNotFound(container)
        try:
            context = await run_sync(create_context, pod, spec, run, folder, self._services)
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
        except ConnectionRefusedError:  # a server that listens on 127.0.0.1 only
            if address == LOOPBACK:
                raise
        return await asyncio.open_connection(LOOPBACK, mapped or port, limit=_BUFFER)

    def _running(self, pod: Obj, container: str) -> ContainerRun:
        run = latest_run(container, self._services.pods_folder / uid_of(pod))
        if run is None or run.termination() is not None:
            raise ContainerNotFound(container)
        return run


class AttachSession:
    """Implements `Session`. Input is ignored: containers have no standard input here."""

    def __init__(self, run: ContainerRun):
        self._blocks: Iterator[bytes] = read_blocks(run.log, tail_position(run.log, 0), lambda: run.termination() is not None)
        self._parts: deque[tuple[int, bytes]] = deque()

    async def read(self) -> tuple[int, bytes] | None:
        while not self._parts:
            block = await run_sync(next, self._blocks, None, limiter=_READER_THREADS)
            if block is None:
                return None  # the end of the log, with its container
            self._parts.extend(_parts(block))
        return self._parts.popleft()

    async def write(self, data: bytes) -> None:
        pass

    async def close_stdin(self) -> None:
        pass

    def resize(self, width: int, height: int) -> None:
        pass

    async def exit_code(self) -> int:
        return 0

    async def end(self) -> None:
        pass


def _parts(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield stream number and text, with consecutive entries of the same stream joined."""
    stream, texts = STDOUT, list[bytes]()
    for _, name, text in entries(block):
        number = STDERR if name == b"stderr" else STDOUT
        if number != stream and texts:
            yield stream, b"".join(texts)
            texts = []
        stream = number
        texts.append(text)
    if texts:
        yield stream, b"".join(texts)


def tar_command(command: list[str], mounts: tuple[tuple[str, Path], ...], links: Path) -> list[str] | None:
    """Return a tar command that archives a path of a volume under the container's path; None for any other command.

    `links` is a folder for the links. Raises OSError.
    """
    if command[:3] != _ARCHIVE or len(command) != 4:
        return None  # not what kubectl cp runs
    path = command[3].rstrip("/")
    for number, (mount, host) in sorted(enumerate(mounts), key=lambda entry: len(entry[1][0]), reverse=True):
        mount = mount.rstrip("/")
        if mount and (path == mount or path.startswith(mount + "/")):
            root = links / str(number)
            link = root / mount.lstrip("/")
            link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(host)
            inside = path.lstrip("/") + ("/." if path == mount else "")
            return [*_ARCHIVE, "-C", str(root), inside]
    return None


def start_remote_command(
    services: NodeServices, job: Job, host: str, command: list[str], files: list[int], connection: socket.socket
) -> subprocess.Popen[bytes]:
    """Start it in the container of the host that has the job's key. Raises Refused, OSError."""
    selector = f"{names.JOBSET_UID_LABEL}={job.jobset_uid}"
    for pod in services.cluster.list(POD, job.namespace, label_selector=selector).items:
        container = next((each for each in pod["spec"]["containers"] if has_key(each)), None)
        if container is None or is_deleting(pod) or not _is_named(pod, host):
            continue  # not part of the job, ending, or another host
        folder = services.pods_folder / uid_of(pod)
        run = latest_run(container["name"], folder)
        if run is None or run.termination() is not None:
            continue  # not started, or ended
        try:
            context = create_context(pod, container, run, folder, services)
        except (ConfigError, VolumeError) as error:
            raise Refused(str(error)) from error
        env = {**context.env, REMOTE_COMMAND_MARK: secrets.token_hex(8)}
        with child_command(command, env, context.cwd, tty=False, isolated_run=run.folder) as child:
            process = start_session(child, f"{REMOTE_COMMAND_MARK}={env[REMOTE_COMMAND_MARK]}", files, connection)
        log.info("event=mpi_command_started pod=%s/%s container=%s", job.namespace, name_of(pod), container["name"])
        return process
    raise Refused("no pod of this job with this host name is running")


def _is_named(pod: Obj, host: str) -> bool:
    """Whether the host is the pod's name in any of the forms of the hosts file, or its address."""
    full = f"{short_host_name(pod)}.{pod_domain(pod)}."
    return bool(host) and (full.startswith(f"{host}.") or host == (pod.get("status") or {}).get("podIP"))


def start_session(command: ChildCommand, mark: str, files: list[int], connection: socket.socket) -> subprocess.Popen[bytes]:
    """Start a command for a client in a process that ends it with the client. Raises OSError."""
    stdin, stdout, stderr = files
    return subprocess.Popen(
        [sys.executable, "-S", "-E", "-P", session.__file__, str(connection.fileno()), mark, *command.argv],
        env=command.env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(*command.pass_fds, connection.fileno()),
        start_new_session=True,
    )
