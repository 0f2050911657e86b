"""Commands between pods of an MPI job, by the node's socket: the client is the real one, and the pod is this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import pod
from support.waiting import eventually

from trainwright.api.names import JOBSET_UID_LABEL
from trainwright.api.objects import Obj
from trainwright.controlplane.node.mpi import job_sockets, remote_shell
from trainwright.controlplane.node.mpi.job_sockets import Job, JobSockets
from trainwright.controlplane.node.sessions.node_sessions import REMOTE_COMMAND_MARK, start_session
from trainwright.controlplane.node.supervisor.child_command import child_command

pytestmark = [pytest.mark.medium, pytest.mark.skipif(sys.platform != "linux", reason="MPI needs isolation")]

RUN_CLIENT = "import sys, remote_shell as shell; shell.ask.__defaults__ = ('socket',); sys.exit(shell.main())"
DONE = b'{"exit": 0}\n'


def pod_of(uid: str, namespace: str = "default") -> Obj:
    return pod(metadata={"namespace": namespace, "labels": {JOBSET_UID_LABEL: uid}})


def start(job: Job, host: str, command: list[str], files: list[int], connection: socket.socket) -> subprocess.Popen[bytes]:
    mark = f"{REMOTE_COMMAND_MARK}={host}"
    with child_command(["env", mark, *command], dict(os.environ), Path("/"), tty=False, isolated_run=None) as child:
        return start_session(child, mark, files, connection)


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[JobSockets]:
    found = JobSockets(tmp_path / "mpi", start)
    yield found
    found.stop()


@pytest.fixture
def folder(sockets: JobSockets) -> Path:
    return sockets.folder_of(pod_of("a")) or Path()


def client(folder: Path, command: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-S", "-c", RUN_CLIENT, f"host-{os.getpid()}-{time.monotonic_ns()}", command]
    env = {**os.environ, "PYTHONPATH": str(Path(remote_shell.__file__).parent)}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe)


def send(folder: Path, line: bytes = b'{"host": "h", "command": ["true"]}\n', files: int = 3) -> bytes:
    """Send a line with so many files, and return the answer."""
    opened = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(f"/proc/self/fd/{opened}/socket")
        os.close(opened)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused already: the answer is there
            sent = socket.send_fds(connection, [line], [0] * files) if files else 0
            if sent < len(line):
                connection.sendall(line[sent:])
        try:
            return connection.recv(4096)
        except ConnectionResetError:
            return b"error"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exec no-such-program", 127)])
def test_commands_get_the_streams_and_return_their_exit_code(folder: Path, end: str, code: int) -> None:
    sent = os.urandom(3 * 1024 * 1024 + 17)
    running = client(folder, f"cat; echo bad >&2; {end}")
    out, errors = running.communicate(sent, timeout=30)
    assert (out == sent, errors[:4], running.returncode) == (True, b"bad\n", code)


def test_command_and_its_descendants_end_with_the_client(folder: Path) -> None:
    rank = 'import os,signal,time;signal.signal(15,signal.SIG_IGN);os.write(1,b"%d\\n" % os.getpid());time.sleep(300)'
    running = client(folder, f"{sys.executable} -c '{rank}' & setsid {sys.executable} -c '{rank}' & echo $$; wait")
    pids = [int(running.stdout.readline()) for _ in range(3)]  # type: ignore[union-attr]
    assert all(map(is_running, pids))
    running.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(is_running, pids)), 10)
    running.communicate()


def test_commands_outlive_the_listener(sockets: JobSockets, folder: Path) -> None:
    running = client(folder, "echo ready; read line; echo $line; exit 4")
    assert running.stdout.readline() == b"ready\n"  # type: ignore[union-attr]
    sockets.stop()
    assert running.communicate(b"more\n", timeout=20)[0] == b"more\n"
    assert running.returncode == 4


@pytest.mark.parametrize(
    "line",
    [
        b"no json\n",
        b"[" * 100_000 + b"\n",
        b'{"host": "h", "command": []}\n',
        b'{"host": "h", "command": ["true\\u0000"]}\n',
        b'{"host": "h", "command": ["true\\ud800"]}\n',
        b'{"host": "h", "command": ["true"]}',
        b'{"host": "' + b"h" * job_sockets.LINE_BYTES + b'", "command": ["true"]}\n',
    ],
    ids=range(7),
)
def test_hostile_lines_are_refused(folder: Path, line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_sockets, "LINE_SECONDS", 0.5)
    before = len(os.listdir("/proc/self/fd"))
    assert b"error" in send(folder, line)
    assert b"error" in send(folder, line, files=0)
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before, 10, "descriptors to be closed")
    assert b"error" in send(folder, files=2)
    assert send(folder) == DONE


def test_connections_of_a_job_are_bounded(sockets: JobSockets, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MOST_CONNECTIONS", 2), ("REST_SECONDS", 0.0)):
        monkeypatch.setattr(job_sockets, name, value)
    one, *others = filter(None, (sockets.folder_of(pod_of(*job)) for job in (("a",), ("b",), ("a", "other"))))
    silent = [client(one, "echo started; read line") for _ in range(2)]
    for each in silent:
        assert each.stdout is not None
        assert each.stdout.readline() == b"started\n"
    assert b"2 connections" in send(one)
    assert [send(other) for other in others] == [DONE, DONE], "a label of another namespace is not of the job"
    for each in silent:
        each.communicate(b"end\n", timeout=20)
    eventually(lambda: send(one) == DONE, 10, "a free connection")


def test_sockets_return_with_the_node_and_end_with_their_job(sockets: JobSockets, folder: Path, tmp_path: Path) -> None:
    sockets.folder_of(pod_of("b"))
    sockets.stop()
    again = JobSockets(tmp_path / "mpi", start)
    try:
        again.restore([pod_of("a"), pod_of("c"), pod()])
        assert os.listdir(tmp_path / "mpi") == [folder.name]
        assert send(folder) == DONE
        again.release(pod_of("a"))
        assert not folder.exists()
    finally:
        again.stop()
