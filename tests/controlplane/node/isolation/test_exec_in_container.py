"""Commands of exec sessions, probes and hooks run inside of the container, and exit as outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.supervised_containers import Run, Runs, interpreter, is_running
from support.waiting import eventually

from trainwright.controlplane.node.supervisor.child_command import command_inside

pytestmark = pytest.mark.medium
USER = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1001}}


@pytest.fixture
def run(runs: Runs) -> Run:
    found = runs.start("sleep", "600", pod=USER, cwd="/made/for/me")
    found.state()
    return found


def test_a_command_sees_what_the_container_sees(run: Run) -> None:
    script = "id -u; id -g; pwd; umask; hostname; cat /proc/1/comm; grep CapEff /proc/self/status; echo $WHO; env | wc -l"
    done = run.execute("sh", "-c", script, env={"WHO": "me"})
    expected = [
        "1000",
        "1001",
        "/made/for/me",
        "0022",
        "web-0",
        "sleep",
        "CapEff:",
        "0000000000000000",
        "me",
        "3",
    ]
    assert done.stdout.split() == expected
    assert done.stderr == ""


EXITS: list[tuple[list[str], int, str]] = [
    (["sh", "-c", "exit 7"], 7, ""),
    (["sh", "-c", "kill -TERM $$"], -signal.SIGTERM, ""),
    (["sh", "-c", "kill -KILL $$"], -signal.SIGKILL, ""),
    (["nosuch"], 127, 'exec: "nosuch": executable file not found in $PATH'),
    (["/no/such"], 127, 'exec: "/no/such": stat /no/such: no such file or directory'),
    (["/etc/passwd"], 126, 'exec: "/etc/passwd": permission denied'),
]


def test_a_command_exits_as_outside(run: Run) -> None:
    for argv, code, message in EXITS:
        done = run.execute(*argv)
        said = f"cannot start {argv[0]!r} in the container: {message}\n" if message else ""
        assert (done.returncode, done.stdout, done.stderr) == (code, "", said), argv


def test_input_and_folder_are_passed_on(run: Run) -> None:
    done = run.execute("sh", "-c", "pwd; cat", stdin="text", cwd="/usr/bin")
    assert (done.returncode, done.stdout) == (0, "/usr/bin\ntext")


def test_variables_of_the_loader_take_no_effect_outside(run: Run) -> None:
    done = run.execute("sh", "-c", "echo $LD_PRELOAD", env={"LD_PRELOAD": "/no/such/library.so"})
    assert done.stdout == "/no/such/library.so\n"
    assert set(done.stderr.split("'")[1::2]) <= {"/no/such/library.so"}
    assert done.stderr.count("\n") <= 1  # by the command itself, not by the helper


def test_a_terminal_is_the_controlling_one(run: Run) -> None:
    command = command_inside(
        run.folder, ["sh", "-c", "echo hi > /dev/tty; stty size; ps -o tpgid= -p $$"], {"PATH": "/usr/bin"}, has_terminal=True
    )
    command.argv[0] = interpreter(run.user)
    master, slave = os.openpty()
    if run.user is not None:
        os.fchown(slave, run.user, -1)
    as_user = {} if run.user is None else {"user": run.user, "group": run.user, "extra_groups": [run.user]}
    process = subprocess.Popen(
        command.argv,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        pass_fds=(command.env_fd,),
        start_new_session=True,
        env={},
        **as_user,
    )
    os.close(slave)
    os.close(command.env_fd)
    printed = b""
    while data := _read(master):
        printed += data
    os.close(master)
    assert process.wait(20) == 0
    hi, size, group = printed.decode().split("\r\n")[:3]
    assert (hi, size) == ("hi", "0 0")
    assert int(group) > 1


def test_signals_reach_the_command(run: Run) -> None:
    process = _start(run, "trap 'echo got it; exit 5' TERM; echo ready; while true; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(20) == 5
    assert process.stdout.read() == b"got it\n"


def test_a_command_ends_with_the_helper_and_with_the_container(run: Run) -> None:
    for end in ("helper", "container"):
        process = _start(run, "echo; exec sleep 601")
        assert process.stdout is not None
        process.stdout.readline()
        inside = eventually(_sleeping)
        if end == "helper":
            process.kill()
        else:
            os.kill(run.state()["pid"], signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL
        eventually(lambda inside=inside: not any(map(is_running, inside)))  # type: ignore[misc]


def test_an_ended_container_is_not_entered_even_if_its_process_id_is_used_again(run: Run) -> None:
    os.kill(run.state()["pid"], signal.SIGKILL)
    run.ended()
    done = run.execute("true")
    assert (done.returncode, done.stderr) == (126, "cannot start 'true' in the container: the container has ended\n")
    identity = json.loads((run.folder / "identity.json").read_text("utf-8"))
    (run.folder / "identity.json").write_text(json.dumps({**identity, "pid": os.getpid()}), "utf-8")
    assert run.execute("true").stderr == done.stderr


def test_a_run_without_isolation_cannot_be_entered(runs: Runs) -> None:
    run = runs.start("sleep", "600", isolated=False)
    os.killpg(run.state()["pid"], signal.SIGKILL)
    assert "not running in namespaces" in run.execute("true").stderr


def _start(run: Run, script: str) -> subprocess.Popen[bytes]:
    command = command_inside(run.folder, ["sh", "-c", script], {"PATH": "/usr/bin:/bin"})
    command.argv[0] = interpreter(run.user)
    as_user = {} if run.user is None else {"user": run.user, "group": run.user, "extra_groups": [run.user]}
    process = subprocess.Popen(
        command.argv, stdout=subprocess.PIPE, pass_fds=(command.env_fd,), start_new_session=True, env={}, **as_user
    )  # type: ignore[call-overload]
    os.close(command.env_fd)
    return process  # type: ignore[no-any-return]


def _sleeping() -> list[int]:
    found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if _text(path) == b"sleep\x00601\x00"]
    return [pid for pid in found if is_running(pid)]


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1000)
    except OSError:  # the terminal has no users any more
        return b""
