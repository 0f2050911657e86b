"""The supervisor of a container, isolated or not: starts that fail, records of start and end, notifications."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.supervised_containers import Runs, supervised_runs
from support.waiting import eventually

from trainwright.controlplane.node.supervisor import supervise

pytestmark = pytest.mark.medium


@pytest.fixture
def runs() -> Iterator[Runs]:
    with supervised_runs(None) as found:
        yield found


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["/no/such/program"], 'exec: "/no/such/program": stat /no/such/program: no such file or directory'),
        (["/etc/passwd/x"], 'exec: "/etc/passwd/x": stat /etc/passwd/x: not a directory'),
        (["nosuch", "--flag"], 'exec: "nosuch": executable file not found in $PATH'),
        (["/etc/passwd"], 'exec: "/etc/passwd": permission denied'),
        ([""], 'exec: "": executable file not found in $PATH'),
    ],
)
def test_a_command_that_cannot_be_found_is_a_start_error(runs: Runs, argv: list[str], message: str, isolated: bool) -> None:
    run = runs.start(*argv, isolated=isolated)
    ended = run.ended()
    assert (ended["code"], ended["signal"], ended["reason"], ended["message"]) == (128, 0, "StartError", message)
    assert ended["finishedAt"] > 0
    assert run.output() == ""
    assert not (run.folder / "state.json").exists()


def test_a_working_directory_that_cannot_be_entered_is_a_start_error(runs: Runs) -> None:
    ended = runs.start("true", isolated=False, cwd="/no/such").ended()
    assert ended["message"] == 'chdir to cwd ("/no/such") set in config.json failed: no such file or directory'
    ended = runs.start("true", cwd="/etc/passwd").ended()
    assert (
        ended["message"].startswith("isolation: create the working directory /etc/passwd: ") or "chdir to cwd" in ended["message"]
    )


@pytest.mark.parametrize("isolated", [True, False])
def test_a_file_that_the_kernel_refuses_ends_with_255(runs: Runs, isolated: bool) -> None:
    script = runs.make_folder("opt", {"script": "#!/no/such/interpreter\n"}) / "script"
    script.chmod(0o755)
    run = runs.start(str(script), isolated=isolated, visible=[script.parent])
    assert run.ended()["code"] == 255
    assert run.output() == f"exec {script}: no such file or directory\n"
    assert run.state()["pid"] > 0


@pytest.mark.parametrize("isolated", [True, False])
def test_the_command_is_searched_for_in_the_containers_path(runs: Runs, isolated: bool) -> None:
    folder = runs.make_folder("programs", {"dir/x": "", "plain/tool": "", "good/tool": "#!/bin/sh\necho found $0 $1\n"})
    (folder / "good" / "tool").chmod(0o755)
    (folder / "dir" / "tool").mkdir()
    path = os.pathsep.join(str(folder / name) for name in ("none", "dir", "plain", "good"))
    run = runs.start("tool", "argument", isolated=isolated, visible=[folder], env={"PATH": path})
    assert run.output() == f"found {folder}/good/tool argument\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_container_that_is_told_to_end_in_its_first_moment_ends(runs: Runs, number: signal.Signals) -> None:
    run = runs.start("sleep", "600", isolated=False)
    os.kill(run.state()["pid"], number)
    assert (run.ended()["signal"], run.ended()["code"]) == (number, 128 + number)


@pytest.mark.parametrize("isolated", [True, False])
def test_signals_that_the_cluster_was_started_without_reach_the_command(runs: Runs, isolated: bool) -> None:
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)  # the first two, as by a shell that starts it in the background
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    try:
        run = runs.start("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status", isolated=isolated)
        run.ended()
    finally:
        for number, action in before.items():
            signal.signal(number, action)
    blocked, ignored_by_it = (int(line.split()[1], 16) for line in run.output().splitlines())
    known = sum(1 << number - 1 for number in signal.valid_signals())  # two others belong to the C library
    assert (blocked & known, ignored_by_it & known) == (0, 0)


@pytest.mark.parametrize(("more", "mode"), [({}, "600"), ({"umask": 0o022}, "644"), ({"umask": 0}, "666")])
def test_the_umask_is_private_unless_told(runs: Runs, more: dict[str, int], mode: str) -> None:
    file = runs.folder / "made"
    runs.start("touch", str(file), isolated=False, **more).ended()
    assert f"{file.stat().st_mode & 0o777:o}" == mode


def test_the_agent_is_notified_of_start_and_end_and_may_be_away(runs: Runs) -> None:
    fifo = runs.folder / "changes"
    told = {"notify": str(fifo), "notify_name": "pod-1"}
    assert runs.start("true", isolated=False, **told).ended()["code"] == 0  # there is none
    os.mkfifo(fifo, 0o600)
    assert runs.start("true", isolated=False, **told).ended()["code"] == 0  # nobody reads it
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        runs.start("true", isolated=False, **told).ended()
        assert os.read(reader, 1000) == b"pod-1\n" * 2
        runs.start("nosuch", **told).ended()
        assert os.read(reader, 1000) == b"pod-1\n"
    finally:
        os.close(reader)


def test_a_full_fifo_does_not_delay_a_container(runs: Runs) -> None:
    fifo = runs.folder / "changes"
    os.mkfifo(fifo, 0o600)
    ends = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        _fill(ends)
        assert runs.start("true", isolated=False, notify=str(fifo), notify_name="pod-1").ended()["code"] == 0
    finally:
        os.close(ends)


@pytest.mark.parametrize("isolated", [True, False])
def test_orphans_end_with_the_container_and_their_output_is_kept(runs: Runs, isolated: bool) -> None:
    run = runs.start(
        "sh",
        "-c",
        "(setsid sh -c 'echo orphan; exec sleep 600.25' &); while ! pgrep -f '^sleep 600.25'; do sleep 0.02; done",
        isolated=isolated,
    )
    printed = run.output().split()
    assert "orphan" in printed
    assert run.ended()["code"] == 0


def test_supervisor_runs_in_a_forked_process(tmp_path: Path) -> None:
    spec = {"argv": ["sh", "-c", "exit 5"], "env": {"PATH": os.environ["PATH"]}, "cwd": "/", "log": str(tmp_path / "log")}
    (tmp_path / "spec.json").write_text(json.dumps(spec), "utf-8")
    spawner = (
        "import os, sys; from trainwright.controlplane.node.supervisor import supervise\n"
        "lock = os.open(sys.argv[1] + '/lock', os.O_CREAT | os.O_RDWR)\n"
        "if os.fork() == 0:\n    supervise.main(sys.argv[1], lock)\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", spawner, str(tmp_path)], check=True)
    ended = eventually(lambda: (tmp_path / "exit.json").exists() and json.loads((tmp_path / "exit.json").read_text("utf-8")))
    assert ended["code"] == 5


def test_a_spec_is_removed_before_the_container_starts(runs: Runs) -> None:
    run = runs.start("true", isolated=False)
    run.ended()
    assert sorted(path.name for path in run.folder.iterdir()) == ["exit.json", "lock", "log", "state.json"]
    assert supervise.START_ERROR_CODE == 128


def _fill(pipe: int) -> None:
    while True:
        try:
            os.write(pipe, b"x" * 4096)
        except BlockingIOError:
            return
