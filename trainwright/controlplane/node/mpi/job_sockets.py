"""The sockets of MPI jobs, by which pods of a job run commands in each other: see `remote_shell.py`.

A job's socket is in a folder below the node's own, which only the pods of that job mount, read-only: who can connect is of the job.
A job can only use up its own connections.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from trainwright.api import names
from trainwright.api.objects import Obj, labels_of, namespace_of

MOST_CONNECTIONS = 64
"""Of a job: one for each of its pods, and some."""
LINE_BYTES = 256 * 1024
"""More than any argument that a kernel takes."""
LINE_SECONDS = 10.0
REST_SECONDS = 1.0
"""A connection counts until so long after its end, which bounds the commands that a job can start in a second."""
_PAUSE_SECONDS = 0.1
"""Before the next connection is accepted, after one for which there was no room."""
log = logging.getLogger(__name__)


class Job(NamedTuple):
    """The key of a job: anyone may put the UID of another namespace's JobSet into a label."""

    namespace: str
    jobset_uid: str


class Refused(Exception):
    """The command is not run. The message is for the client."""


Start = Callable[[Job, str, list[str], list[int], socket.socket], "subprocess.Popen[bytes]"]
"""Starts in the pod with this host name the command, with the files as its standard streams, in a process that answers on the
connection. Raises Refused, OSError."""


class JobSockets:
    """Listens in a folder of each job below `folder`."""

    def __init__(self, folder: Path, start: Start):
        self._folder, self._start = folder, start
        self._lock = threading.Lock()
        self._open: dict[Job, _JobSocket] = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def folder_of(self, pod: Obj) -> Path | None:
        """Return the folder with the socket of the pod's job, made on the first call; None without a JobSet. Raises OSError."""
        job = _job_of(pod)
        if job is None:
            return None
        folder = self._folder / "_".join(job)
        with self._lock:
            if job not in self._open:
                self._open[job] = _JobSocket(job, folder, self._start)
        return folder

    def restore(self, pods: Iterable[Obj]) -> None:
        """Listen again for the jobs of these pods that have a socket, and remove other sockets. Called when the node starts."""
        found = {"_".join(job): pod for pod in pods if (job := _job_of(pod)) is not None}
        for folder in list(self._folder.iterdir()):
            try:
                if folder.name in found:
                    self.folder_of(found[folder.name])
                else:
                    shutil.rmtree(folder)
            except OSError as error:  # others work, and the job's next container tries again
                log.error("event=mpi_socket_failed folder=%s error=%s", folder.name, error)

    def release(self, pod: Obj) -> None:
        """Remove the socket of the job of a pod."""
        with self._lock:
            found = self._open.pop(job, None) if (job := _job_of(pod)) is not None else None
        if found is not None:
            found.close()
            shutil.rmtree(found.folder, ignore_errors=True)

    def stop(self) -> None:
        """Stop listening. The sockets stay, because pods have their folders mounted."""
        with self._lock:
            for found in self._open.values():
                found.close()
            self._open.clear()


class _JobSocket:
    def __init__(self, job: Job, folder: Path, start: Start):
        self.folder, self._job, self._start = folder, job, start
        self._slots = threading.Semaphore(MOST_CONNECTIONS)
        self._closed = threading.Event()
        self._listener = _listen(folder)
        threading.Thread(target=self._accept, name="mpi-socket", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`

    def _accept(self) -> None:
        with self._listener:
            while not self._closed.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # closed, or no file descriptor is free
                    self._closed.wait(_PAUSE_SECONDS)
                    continue
                if self._slots.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(connection,), name="mpi-command", daemon=True).start()
                else:
                    _refuse(connection, f"the job has {MOST_CONNECTIONS} connections already")
                    self._closed.wait(_PAUSE_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        """Start the command, and count the connection until it has ended."""
        try:
            if (process := self._started(connection)) is not None:
                process.wait()
            self._closed.wait(REST_SECONDS)
        finally:
            self._slots.release()

    def _started(self, connection: socket.socket) -> subprocess.Popen[bytes] | None:
        """Return the process that has the connection and its files, which this one no longer has; None if it was refused."""
        files: list[int] = []
        try:
            process = self._start(self._job, *_receive(connection, files), files, connection)
        except (Refused, OSError, ValueError) as error:  # ValueError: a NUL byte in a command
            log.info("event=mpi_command_refused job=%s error=%s", "/".join(self._job), error)
            _refuse(connection, str(error))
            return None
        finally:
            for file in files:
                os.close(file)
        connection.close()
        return process


def _job_of(pod: Obj) -> Job | None:
    uid = labels_of(pod).get(names.JOBSET_UID_LABEL)
    return Job(namespace_of(pod), uid) if uid else None


def _listen(folder: Path) -> socket.socket:
    """Listen in a folder that pods of any user may enter. Raises OSError."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    file = folder / "socket"
    file.unlink(missing_ok=True)
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"/proc/self/fd/{opened}/socket")  # the path of the folder may be longer than an address may be
        file.chmod(0o666)
        listener.listen()
    except OSError:
        listener.close()
        raise
    finally:
        os.close(opened)
    return listener


def _receive(connection: socket.socket, files: list[int]) -> tuple[str, list[str]]:
    """Receive host and command, and put the client's three streams into `files`. Raises Refused, OSError."""
    deadline = time.monotonic() + LINE_SECONDS
    connection.settimeout(LINE_SECONDS)
    line, received, _, _ = socket.recv_fds(connection, LINE_BYTES, 3, socket.MSG_CMSG_CLOEXEC)
    files += received
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(LINE_BYTES - len(line))  # nothing for a line that is too long
        if not part:
            raise Refused("the request is not a line")
        line += part
    try:
        match json.loads(line):
            case {"host": str(host), "command": [str(), *_] as command} if len(files) == 3:
                return host, [str(word) for word in command]
    except (ValueError, RecursionError):
        pass  # not JSON, or deeper than Python reads
    raise Refused("the request is not valid")


def _refuse(connection: socket.socket, problem: str) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(LINE_SECONDS)
        connection.sendall(json.dumps({"error": problem}).encode() + b"\n")
