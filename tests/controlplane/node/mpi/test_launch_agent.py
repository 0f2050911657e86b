"""The launch agent and its client, as the two programs that run in pods: what goes through, who is refused, what ends with whom."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.ports import free_port
from support.waiting import eventually

from trainwright.controlplane.node.mpi import stand_in, wire

pytestmark = pytest.mark.medium

AGENT, CLIENT = (str(Path(wire.__file__).with_name(name)) for name in ("launch_agent.py", "remote_shell.py"))
PYTHON = [sys.executable, "-S", "-E", "-P"]
HOST = "127.0.0.1"


@dataclass
class Agent:
    port: int
    key: Path
    log: Path
    process: subprocess.Popen[bytes]

    def client(self, *words: str, key: Path | None = None, options: tuple[str, ...] = ()) -> list[str]:
        command = [*PYTHON, CLIENT, "-p", str(self.port), *options, HOST, *words]
        return ["env", f"{wire.KEY}={key or self.key}", *command]

    def run(self, *words: str, stdin: bytes = b"", key: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(self.client(*words, key=key), input=stdin, capture_output=True, timeout=30, check=False)

    def start(self, *words: str, **pipes: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.client(*words), **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **pipes})


@contextmanager
def started_agent(folder: Path) -> Iterator[Agent]:
    key, log, port = folder / "id_rsa", folder / "log", free_port()
    key.write_text("the private key of a job")
    environment = {**os.environ, wire.KEY: str(key), wire.ADDRESS: HOST, "HOME": str(folder), "OF_THE_POD": "yes"}
    with log.open("wb") as file:
        command = [*PYTHON, AGENT, "-De", "-f", "/home/mpiuser/.sshd_config", "-p", str(port)]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=file)
    try:
        eventually(lambda: "event=listening" in log.read_text())
        yield Agent(port, key, log, process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with started_agent(tmp_path_factory.mktemp("agent")) as running:
        yield running


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_words_are_run_by_a_shell_in_the_home_with_the_variables_of_the_pod(agent: Agent) -> None:
    done = agent.run("echo", "$OF_THE_POD;", "pwd;", "printf '%s|' 'a  b' c; echo bad >&2; exit 3")
    assert done.stdout.decode() == f"yes\n{agent.key.parent}\na  b|c|"
    assert (done.returncode, done.stderr) == (3, b"bad\n")


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143), ("no-such-program", 127)]
)
def test_exit_codes_are_those_of_a_shell(agent: Agent, command: str, code: int) -> None:
    assert agent.run(command).returncode == code


def test_large_binary_input_and_output_pass_unchanged(agent: Agent) -> None:
    sent = os.urandom(3 * 1024 * 1024 + 17)
    done = agent.run("cat; echo ended >&2", stdin=sent)
    assert done.stdout == sent
    assert (done.returncode, done.stderr) == (0, b"ended\n")


def test_a_command_that_does_not_read_ends_although_input_is_left(agent: Agent) -> None:
    assert agent.run("head -c 5", stdin=bytes(2 * 1024 * 1024)).stdout == bytes(5)
    assert agent.run("exec <&-; sleep 0.1; echo done", stdin=bytes(2 * 1024 * 1024)).stdout == b"done\n"


def test_the_end_of_input_reaches_the_command_and_output_goes_on(agent: Agent) -> None:
    client = agent.start("cat; echo after the end", stdin=subprocess.PIPE)
    out, _ = client.communicate(b"before\n", timeout=20)
    assert out == b"before\nafter the end\n"


def test_a_closed_standard_input_is_an_empty_one(agent: Agent) -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *agent.client("cat; echo ended")]
    assert subprocess.run(command, capture_output=True, timeout=20, check=False).stdout == b"ended\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_reach_the_command(agent: Agent, number: signal.Signals) -> None:
    client = agent.start(f"trap 'echo got {number}; exit 9' {number}; echo ready; while :; do sleep 0.02; done")
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    client.send_signal(number)
    assert client.communicate(timeout=20)[0] == b"got %d\n" % number
    assert client.returncode == 9


@pytest.mark.skipif(sys.platform != "linux", reason="descendants are found in /proc")
def test_all_that_a_command_has_started_ends_with_its_client_or_the_agent(agent: Agent, tmp_path: Path) -> None:
    """Also what left its process group and session, whose parent is gone, and that ignores SIGTERM."""
    rank = 'import os,signal,time;signal.signal(15,signal.SIG_IGN);os.write(1,b"%d\\n" % os.getpid());time.sleep(300)'
    command = f"{sys.executable} -c '{rank}' & setsid {sys.executable} -c '{rank}' & (setsid sleep 300 & echo $!); wait"
    with started_agent(tmp_path) as other:
        killed, left = agent.start(command), other.start(command)
        pids = [int((client.stdout and client.stdout.readline()) or b"") for client in (killed, left) for _ in range(3)]
        assert all(map(is_running, pids))
        began = time.monotonic()
        killed.kill()
        other.process.terminate()
        eventually(lambda: not any(map(is_running, pids)), 10)
        assert time.monotonic() - began > 1.5, "they have two seconds to end"
        assert (killed.wait(10), left.wait(10), other.process.wait(10)) == (-signal.SIGKILL, 255, 0)
        for client in (killed, left):
            assert client.stdout is not None
            client.stdout.close()


def test_another_key_is_refused_and_runs_nothing(agent: Agent, tmp_path: Path) -> None:
    other, made = tmp_path / "other", tmp_path / "made"
    other.write_text("the private key of another job")
    done = agent.run(f"touch {made}", key=other)
    assert (done.returncode, done.stdout) == (255, b"")
    assert b"of another job" in done.stderr
    assert not made.exists()
    eventually(lambda: "event=refused" in agent.log.read_text())
    empty = tmp_path / "empty"
    empty.touch()
    assert agent.run("true", key=empty).returncode == 255
    assert b"not a private key" in agent.run("true", key=empty).stderr


def test_agent_refuses_clients_without_the_key(agent: Agent) -> None:
    for sent in (b"SSH-2.0-OpenSSH_9.9\r\n" + bytes(200), os.urandom(4096), b"trainwright launch agent 1\n" + bytes(64)):
        with socket.create_connection((HOST, agent.port), timeout=20) as stranger:
            stranger.sendall(sent)
            received = b""
            while part := _received(stranger):
                received += part
        assert received[-1:] == b"N" or len(received) == 59
    assert agent.run("echo still here").stdout == b"still here\n"


def test_a_proof_is_worth_nothing_at_another_address(agent: Agent) -> None:
    """A program that listens where an agent should, and passes everything on to one, gets no further than the handshake."""
    with socket.create_server((HOST, 0)) as between:
        port = between.getsockname()[1]
        client = subprocess.Popen(
            ["env", f"{wire.KEY}={agent.key}", *PYTHON, CLIENT, "-p", str(port), HOST, "echo reached"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with between.accept()[0] as inner, socket.create_connection((HOST, agent.port)) as outer:
            inner.sendall(outer.recv(4096))
            outer.sendall(inner.recv(4096))
            inner.sendall(outer.recv(4096))
            out, errors = client.communicate(timeout=20)
    assert (client.returncode, out) == (255, b"")
    assert b"another key" in errors


@pytest.mark.skipif(sys.platform != "linux", reason="pods have no address there")
def test_a_command_for_the_own_pod_needs_no_agent(tmp_path: Path) -> None:
    command = [*PYTHON, CLIENT, "127.45.6.7", "pwd; cat; exit 6"]
    environment = {wire.ADDRESS: "127.45.6.7", "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=environment, input=b"input", capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (6, f"{tmp_path}\ninput".encode())
    assert subprocess.run(
        [*command[:-2], "-n", *command[-2:]], env=environment, input=b"x", capture_output=True, check=False
    ).stdout == (f"{tmp_path}\n".encode())


def test_probes_are_not_logged(agent: Agent) -> None:
    before = agent.log.read_text()
    for _ in range(3):
        socket.create_connection((HOST, agent.port)).close()
    assert agent.run("true").returncode == 0
    assert "refused" not in agent.log.read_text()[len(before) :]


def test_nobody_listens_is_tried_as_often_as_asked(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    command = [*PYTHON, CLIENT, "-o", "ConnectionAttempts=2", "-p", str(free_port()), HOST, "true"]
    began = time.monotonic()
    done = subprocess.run(command, env={wire.KEY: str(key)}, capture_output=True, timeout=20, check=False)
    assert done.returncode == 255
    assert b"cannot connect to 127.0.0.1" in done.stderr
    assert time.monotonic() - began > 1.0


def test_an_address_that_is_taken_is_named(agent: Agent) -> None:
    environment = {wire.KEY: str(agent.key), wire.ADDRESS: HOST}
    done = subprocess.run([*PYTHON, AGENT, "-p", str(agent.port)], env=environment, capture_output=True, timeout=20, check=False)
    assert done.returncode == 255
    assert f"cannot listen on {HOST}:{agent.port}".encode() in done.stderr
    assert b"TRAINWRIGHT_MPI_KEY is not set" in subprocess.run([*PYTHON, AGENT], env={}, capture_output=True, check=False).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_orphans_of_commands_that_ended_are_waited_for(agent: Agent) -> None:
    """As a daemon that a command leaves: it goes on, its parent is the agent, and it leaves no zombie."""
    pid = int(agent.run("setsid sleep 0.4 >/dev/null 2>&1 </dev/null & echo $!").stdout)
    assert is_running(pid)
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(agent.process.pid))
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_stand_in_names_the_programs_that_are_here() -> None:
    words = stand_in.replace_program([stand_in.SSHD, "-De"], {stand_in.SSHD: ("trainwright-sshd",)}, {})
    assert words == [*PYTHON, AGENT, "-De"]


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionError:
        return b""


def test_agent_that_is_told_to_end_before_it_listens_ends(tmp_path: Path) -> None:
    """As process 1 of a container, it would ignore a signal that it has no handler for."""
    key = tmp_path / "id_rsa"
    os.mkfifo(key)
    environment = {**os.environ, wire.KEY: str(key), wire.ADDRESS: HOST}
    process = subprocess.Popen([*PYTHON, AGENT, "-p", str(free_port())], env=environment, stdin=subprocess.DEVNULL)

    def reads_its_key() -> int:
        try:
            return os.open(key, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads yet
            return 0

    def is_ended() -> bool:
        # Python calls a handler between two system calls only: a signal just before a blocking read waits for the next one.
        process.terminate()
        return process.poll() is not None

    try:
        writing = eventually(reads_its_key)
        eventually(is_ended, 10, "the end of the agent")
        assert process.returncode == 0
        os.close(writing)
    finally:
        process.kill()
