"""exec, attach and cp with kubectl and the official Python client, on a node that runs real processes."""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import os
import pty
import select
import shutil
import signal
import ssl
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories
import pytest
import urllib3
from entered_cluster import Entered
from support.container_processes import has_ended, host_pid
from support.waiting import eventually

from trainwright.api.kinds import POD
from trainwright.api.objects import uid_of
from trainwright.controlplane.apiserver.streaming import remote_command, websocket

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
EXEC = "/api/v1/namespaces/default/pods/p/exec"
SLEEPING = "echo before; sleep 1000"


@pytest.fixture(scope="module")
def pod(entered: Any) -> Any:
    """A cluster with the pod `p`, whose container has a variable and a volume."""
    container = {
        "env": [{"name": "GREETING", "value": "hello world"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    entered.run("p", SLEEPING, container=container, volumes=[{"name": "data", "emptyDir": {}}])
    return entered


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)])
def test_the_exit_code_is_that_of_the_command(pod: Any, script: str, code: int) -> None:
    done = pod.kubectl("exec", "p", "--", "bash", "-c", script, fails=code)
    assert (f"exit code {code}".encode() in done.stderr) is bool(code)


def test_a_program_that_is_not_there(pod: Any) -> None:
    done = pod.kubectl("exec", "p", "--", "no-such-program", fails=127)
    assert b"cannot start 'no-such-program'" in done.stderr


def test_streams_variables_and_paths_are_those_of_the_container(pod: Any) -> None:
    script = 'echo "$GREETING"; echo oops >&2; echo content > /data/file; yes | head -1'
    done = pod.kubectl("exec", "p", "--", "bash", "-c", script)
    # kubectl may get the empty message with which a server opens the streams before it has them, and logs that.
    errors = [line for line in done.stderr.splitlines() if b"Unknown stream id" not in line]
    assert (done.stdout, errors) == (b"hello world\ny\n", [b"oops"])
    assert pod.kubectl("exec", "p", "--", "cat", "/data/file").stdout == b"content\n"


def test_input_goes_in_and_ends(pod: Any) -> None:
    given = os.urandom(5_000_000)
    assert pod.kubectl("exec", "-i", "p", "--", "cat", given=given).stdout == given
    assert pod.kubectl("exec", "-i", "p", "--", "head", "-c", "3", given=given).stdout == given[:3]


def test_files_are_copied_both_ways(pod: Any, tmp_path: Path) -> None:
    content = os.urandom(8_000_000)
    (tmp_path / "there").write_bytes(content)
    pod.kubectl("cp", str(tmp_path / "there"), "p:/data/copied")
    pod.kubectl("cp", "p:/data/copied", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content
    pod.kubectl("exec", "p", "--", "bash", "-c", "mkdir -p /data/folder/deeper && echo x > /data/folder/deeper/file")
    for source in ("/data", "/data/"):
        (copy := tmp_path / f"volume{len(source)}").mkdir()
        pod.kubectl("cp", f"p:{source}", str(copy))
        assert (copy / "folder/deeper/file").read_text() == "x\n"
    pod.kubectl("exec", "p", "--", "bash", "-c", "echo here > relative")
    pod.kubectl("cp", "p:relative", str(tmp_path / "relative"))
    assert (tmp_path / "relative").read_text() == "here\n"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal of 33 by 101."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    yield ours, theirs
    os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        assert select.select([terminal], [], [], 20)[0], f"{text!r} did not come; seen: {seen!r}"
        seen += os.read(terminal, 4096)
    return seen


def test_a_terminal_has_a_size_a_name_and_an_end(pod: Any, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    shell = ["env", "PS1=ready> ", "bash", "--norc"]
    with pod.started("exec", "-it", "p", "--", *shell, stdin=theirs, stdout=theirs, stderr=theirs) as kubectl:
        read_until(ours, b"ready> ")
        os.write(ours, b"stty size; [ -t 0 ] && echo is-a-$TERM\n")
        assert b"33 101" in read_until(ours, b"is-a-xterm")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 22, 77, 0, 0))
        kubectl.send_signal(signal.SIGWINCH)
        os.write(ours, b"until stty size | grep '22 77'; do sleep 0.1; done; echo re''sized\n")
        assert b"22 77" in read_until(ours, b"resized")
        os.write(ours, b"echo sl''eeping; sleep 1000\n")
        read_until(ours, b"sleeping")
        seen = b""
        while b"ready> " not in seen:
            os.write(ours, b"\x03")  # Control-C ends what runs, not the shell; which may not have begun yet
            while select.select([ours], [], [], 0.5)[0]:
                seen += os.read(ours, 4096)
        os.write(ours, b"echo st''ill here; exit 5\n")
        read_until(ours, b"still here")
        assert kubectl.wait(20) == 5
        os.close(theirs)


def test_attach_follows_both_streams_to_the_end(entered: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = "echo early; until [ -e $0 ]; do echo tick; sleep 0.1; done; echo out; echo err >&2"
    entered.run("spoken", script, container={"args": [str(go)]})
    eventually(lambda: b"tick" in b"".join(entered.plane.cluster.logs("spoken", "default")))
    with entered.started("attach", "spoken") as kubectl:
        assert kubectl.stdout.readline() == b"tick\n"
        go.touch()
        out, err = kubectl.communicate(timeout=20)
        assert kubectl.returncode == 0
    assert out.endswith(b"out\n")
    assert b"early" not in out
    assert err.endswith(b"err\n")


def test_attach_says_that_there_is_no_input(pod: Any) -> None:
    assert b"container main has no standard input" in pod.kubectl("attach", "-i", "p", given=b"x", fails=1).stderr


def started_pid(kubectl: subprocess.Popen[bytes], entered: Any, pod: str = "p") -> int:
    """The process whose id a command has printed."""
    assert kubectl.stdout
    return host_pid(int(kubectl.stdout.readline()), uid_in(entered, pod))


def uid_in(entered: Any, pod: str = "p") -> str:
    return uid_of(entered.plane.cluster.get(POD, pod, "default"))


@pytest.mark.parametrize("script", ["exec sleep 1000", "trap '' TERM HUP; sleep 1000 & wait", "(sleep 1000) & sleep 1000"])
def test_a_command_ends_with_its_client(pod: Any, script: str) -> None:
    with pod.started("exec", "p", "--", "bash", "-c", f"echo $$; {script}") as kubectl:
        group = started_pid(kubectl, pod)
    eventually(lambda: not group_of(group), 10)


def group_of(number: int) -> list[int]:
    """The processes of a group that run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == number and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def test_a_command_ends_with_its_container(entered: Any) -> None:
    entered.run("short", "sleep 1000")
    with entered.started("exec", "short", "--", "bash", "-c", "echo $$; trap '' TERM; while :; do sleep 1; done") as kubectl:
        pid = started_pid(kubectl, entered, "short")
        entered.plane.cluster.delete(POD, "short", "default", grace_period_seconds=0)
        assert kubectl.wait(20) == 137
    assert has_ended(pid)


def test_detached_processes_end_when_the_container_restarts(entered: Any, tmp_path: Path) -> None:
    script = f"[ -e {tmp_path}/go ] && exec sleep 1000; until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 1"
    entered.run("again", script, restartPolicy="Always")
    daemon = f"setsid bash -c 'echo $$ > {tmp_path}/pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &"
    entered.kubectl("exec", "again", "--", "bash", "-c", f"{daemon} until [ -s {tmp_path}/pid ]; do sleep 0.1; done")
    pid = host_pid(int((tmp_path / "pid").read_text()), uid_in(entered, "again"))
    assert not has_ended(pid)
    (tmp_path / "go").touch()
    eventually(lambda: has_ended(pid), 20)


def test_a_client_that_has_gone_is_noticed_while_its_input_waits(pod: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_command, "STILL_THERE_SECONDS", 0.1)
    with pod.started("exec", "-i", "p", "--", "bash", "-c", "echo $$; exec sleep 1000", stdin=subprocess.PIPE) as kubectl:
        pid = started_pid(kubectl, pod)
        filling = threading.Thread(target=fill, args=(kubectl.stdin,))
        filling.start()
        os.set_blocking(kubectl.stdin.fileno(), True)
        eventually(lambda: not writable(kubectl.stdin.fileno()), 20)
        kubectl.kill()
        filling.join(20)
        eventually(lambda: has_ended(pid), 20)
        kubectl.stdin = None


def fill(pipe: Any) -> None:
    try:
        for _ in range(1000):
            pipe.write(bytes(1 << 20))
    except OSError:
        pass
    finally:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), pipe.fileno())


def writable(file: int) -> bool:
    return bool(select.select([], [file], [], 0.3)[1])


class Raw:
    """A WebSocket by hand, with the words of the official client's library."""

    def __init__(self, pod: Any, path: str, protocols: list[str], *, token: bool = True):
        import websocket as library

        header = [f"Authorization: Bearer {pod.user['token']}"] if token else []
        options = {"cert_reqs": ssl.CERT_NONE}
        self.socket = library.WebSocket(sslopt=options)
        self.socket.connect(pod.url.replace("https", "wss") + path, subprotocols=protocols, header=header, timeout=20)

    def __enter__(self) -> Any:
        return self.socket

    def __exit__(self, *_: object) -> None:
        self.socket.shutdown()


def test_a_browser_hides_its_token_among_the_protocols(pod: Any) -> None:
    token = base64.urlsafe_b64encode(pod.user["token"].encode()).decode().rstrip("=")
    protocols = [f"base64url.bearer.authorization.k8s.io.{token}", "v4.channel.k8s.io"]
    with Raw(pod, f"{EXEC}?command=echo&command=hi&stdout=1", protocols, token=False) as socket:
        assert socket.subprotocol == "v4.channel.k8s.io"
        assert [socket.recv() for _ in range(3)] == [b"\1", b"\1hi\n", b'\3{"metadata":{},"status":"Success"}']


def test_how_a_command_ended_is_a_status(pod: Any) -> None:
    with Raw(pod, f"{EXEC}?command=false&stderr=1", ["v5.channel.k8s.io"]) as socket:
        assert socket.recv() == b"\2"
        status = json.loads(socket.recv()[1:])
    assert (status["reason"], status["details"]) == ("NonZeroExitCode", {"causes": [{"reason": "ExitCode", "message": "1"}]})


def test_a_client_that_does_not_read_holds_the_command_back(pod: Any, tmp_path: Path) -> None:
    script = f"for i in $(seq 600); do head -c 65536 /dev/zero; echo $i > {tmp_path}/sent; done"
    with Raw(
        pod, f"{EXEC}?command=bash&command=-c&command={script.replace(' ', '%20')}&stdout=1", ["v5.channel.k8s.io"]
    ) as socket:
        seen: list[str] = []

        def stands_still() -> bool:
            seen.append((tmp_path / "sent").read_text().strip() if (tmp_path / "sent").exists() else "")
            return len(seen) > 25 and seen[-1] != "" and len(set(seen[-25:])) == 1

        eventually(stands_still, 20)
        assert int(seen[-1]) * 65536 < 25_000_000  # the system's buffers, not ours
        received = 0
        while (message := socket.recv())[:1] == b"\1":
            received += len(message) - 1
    assert received == 600 * 65536


def test_a_client_that_does_not_read_for_long_is_cut_off(pod: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "SLOW_SECONDS", 0.3)
    path = f"{EXEC}?command=bash&command=-c&command=echo%20$$;exec%20yes&stdout=1"
    with Raw(pod, path, ["v5.channel.k8s.io"]) as socket:
        assert socket.recv() == b"\1"
        pid = host_pid(int(socket.recv()[1:].split()[0]), uid_in(pod))
        eventually(lambda: has_ended(pid), 20)


def test_command_arguments_and_output_are_not_logged(pod: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "uvicorn.error")
    pod.kubectl("exec", "p", "--", "echo", "hush-hush")
    pod.kubectl("exec", "p", "-c", "other", "--", "echo", "hush-hush", fails=1)
    assert any("command executed" in record.getMessage() for record in caplog.records)
    assert not [record for record in caplog.records if "hush-hush" in record.getMessage()]


def test_sessions_end_with_the_server(tmp_path: Path, plane: Any) -> None:
    cluster = Entered(plane, plane._home)
    cluster.run("p", "sleep 1000")
    with cluster.started("exec", "p", "--", "bash", "-c", "echo $$; sleep 1000") as kubectl:
        pid = started_pid(kubectl, cluster)
        plane._serving.stop()
        assert kubectl.wait(20) != 0
    eventually(lambda: has_ended(pid), 10)


HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
PODS = "/api/v1/namespaces/default/pods"
REFUSED = [
    ("GET", f"{EXEC}?command=true&stdout=1", {"Authorization": ""}, 403, 'User "system:anonymous"'),
    ("GET", f"{EXEC}?command=true&stdout=1", {"Authorization": "Bearer no"}, 401, "Unauthorized"),
    ("GET", f"{PODS}/nope/exec?command=true&stdout=1", {}, 404, 'pods "nope" not found'),
    ("GET", f"{EXEC}?command=true&stdout=1&container=x", {}, 400, "container x is not valid for pod p"),
    ("GET", f"{PODS}/two/exec?command=true&stdout=1", {}, 400, "a container name must be specified for pod two"),
    ("GET", f"{PODS}/two/exec?command=true&stdout=1&container=a", {}, 400, "pod two does not have a host assigned"),
    ("GET", f"{PODS}/over/exec?command=true&stdout=1", {}, 500, 'container not found ("main")'),
    ("GET", f"{PODS}/over/attach?stdout=1", {}, 500, 'container not found ("main")'),
    ("GET", f"{PODS}/over/portforward", {}, 500, 'pod not found ("over_default")'),
    ("GET", f"{PODS}/p/portforward?ports=0", {}, 400, 'unable to parse "0" as a port'),
    ("GET", f"{PODS}/p/portforward?ports=80,x", {}, 400, 'unable to parse "x" as a port'),
    ("GET", f"{EXEC}?stdout=1", {}, 400, "at least one command"),
    ("GET", f"{EXEC}?command=true", {}, 400, "at least 1 of stdin, stdout, stderr"),
    ("GET", f"{EXEC}?command=true&stdout=1", {"Sec-WebSocket-Protocol": "chat"}, 403, "requested protocol(s) are not supported"),
    ("GET", f"{PODS}/p/portforward", {"Sec-WebSocket-Protocol": "v4.channel.k8s.io"}, 400, '"ports" is required'),
    ("GET", f"{PODS}/p/attach?stdout=1&tty=1", {}, 400, "has no terminal"),
    ("GET", PODS, {}, 400, "WebSockets are supported only for exec"),
    ("POST", f"{EXEC}?command=true&stdout=1", SPDY, 400, "unable to upgrade to SPDY/3.1: this server requires WebSockets"),
    ("POST", f"{EXEC}?command=true&stdout=1&container=x", SPDY, 400, "container x is not valid for pod p"),
    ("POST", f"{PODS}/p/portforward", SPDY, 400, "unable to upgrade to SPDY/3.1"),
    ("GET", f"{EXEC}?command=true&stdout=1", {"Connection": "close", "Upgrade": ""}, 400, "Upgrade request required"),
    ("DELETE", EXEC, {"Connection": "close", "Upgrade": ""}, 405, "does not allow this method"),
]


@pytest.fixture(scope="module")
def others(pod: Any) -> Any:
    """Pods that cannot be entered: one that is over, one without a node."""
    pod.run("over", "true", until="Succeeded")
    containers = [{"name": name, "image": "none"} for name in "ab"]
    waiting = factories.pod("two", containers=containers, nodeSelector={"no": "such"}, schedulerName="nobody")
    pod.plane.cluster.create(waiting)
    return pod


@pytest.mark.parametrize(("method", "path", "headers", "code", "message"), REFUSED)
def test_impossible_commands_are_refused_before_the_upgrade(
    others: Any, method: str, path: str, headers: dict[str, str], code: int, message: str
) -> None:
    sent = {"Authorization": f"Bearer {others.user['token']}", **HANDSHAKE, **headers}
    pool = urllib3.PoolManager(ca_certs=str(others.plane._credentials.authority), retries=False)
    answer = pool.request(method, others.url + path, headers={name: value for name, value in sent.items() if value})
    status = json.loads(answer.data)
    assert (answer.status, status["kind"], status["code"]) == (code, "Status", code)
    assert message in status["message"]


def test_the_official_python_client(pod: Any) -> None:
    core = pod.core()
    stream = pytest.importorskip("kubernetes.stream").stream
    command = ["bash", "-c", "echo out; echo err >&2"]
    assert stream(core.connect_get_namespaced_pod_exec, "p", "default", command=command, stdout=True, stderr=True) == "out\nerr\n"
    core = pod.core()
    options = {"command": ["bash", "-c", "read line; echo got $line; exit 4"], "_preload_content": False}
    client = stream(core.connect_get_namespaced_pod_exec, "p", "default", stdin=True, stdout=True, **options)
    client.write_stdin("something\n")
    client.run_forever(20)
    assert (client.read_stdout(), client.returncode) == ("got something\n", 4)
