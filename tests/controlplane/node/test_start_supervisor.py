"""Supervisors are started by a spawner, and without one: each run has exactly one, which outlives what has started it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import eventually

from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.supervisor.start_supervisor import StartSupervisor, SupervisorSpawner, start_directly

pytestmark = [pytest.mark.medium, pytest.mark.skipif(sys.platform != "linux", reason="the spawner and /proc need Linux")]


@pytest.fixture
def spawner() -> Iterator[SupervisorSpawner]:
    found = SupervisorSpawner()
    yield found
    found.stop()


@pytest.fixture
def impatient() -> Iterator[SupervisorSpawner]:
    found = SupervisorSpawner(answer_seconds=0.2)
    yield found
    found.stop()


def start(folder: Path, script: str, start_supervisor: StartSupervisor) -> ContainerRun:
    """Start a run of a shell script in `folder`."""
    run = ContainerRun("main", 0, folder)
    run.start(["/bin/sh", "-c", script], {}, folder.parent, start_supervisor=start_supervisor)
    return run


def exit_code(run: ContainerRun) -> int:
    ended = eventually(run.termination, what="the end of the run")
    assert ended is not None
    return ended.code


def supervisor_of(run: ContainerRun) -> int:
    """The process id of a run's supervisor, by its command line."""

    def find() -> int:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended
                continue
            if str(run.folder).encode() in words and any(word.endswith(b"supervise.py") for word in words):
                return int(entry.name)
        return 0

    return eventually(find, what="the supervisor")


def wait_for_the_supervisor_to_end(run: ContainerRun) -> None:
    eventually(lambda: not run.is_alive(), what="the end of the supervisor")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def open_files(pid: int) -> list[str]:
    """What its descriptors lead to; those that it closes meanwhile do not count."""
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(descriptor))
    return found


def test_a_run_has_a_supervisor_with_its_name(spawner: SupervisorSpawner, tmp_path: Path) -> None:
    run = start(tmp_path / "run", "sleep 100", spawner.start)
    pid = supervisor_of(run)
    assert os.getsid(pid) == pid
    assert parent_of(pid) != os.getpid()
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert not any(opened.startswith("socket:") for opened in open_files(pid)), "the spawner's own socket"
    run.signal(signal.SIGKILL)
    assert exit_code(run) == 137


def test_runs_share_a_spawner_and_keep_their_results_apart(spawner: SupervisorSpawner, tmp_path: Path) -> None:
    runs = [start(tmp_path / str(code), f"exit {code}", spawner.start) for code in range(5)]
    assert [exit_code(run) for run in runs] == [0, 1, 2, 3, 4]


def test_supervisors_outlive_their_spawner(spawner: SupervisorSpawner, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    run = start(tmp_path / "run", "read line < go; exit 3", spawner.start)
    pid = supervisor_of(run)
    parent = parent_of(pid)
    spawner.stop()
    assert not Path(f"/proc/{parent}").exists()
    assert run.is_alive()
    (tmp_path / "go").write_text("on\n")
    assert exit_code(run) == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_an_answer_a_supervisor_is_started_directly(
    impatient: SupervisorSpawner, tmp_path: Path, number: signal.Signals
) -> None:
    first = start(tmp_path / "first", "sleep 100", impatient.start)
    os.kill(parent_of(supervisor_of(first)), number)
    second = start(tmp_path / "second", "exit 4", impatient.start)
    assert exit_code(second) == 4
    third = start(tmp_path / "third", "sleep 100", impatient.start)
    assert parent_of(supervisor_of(third)) != os.getpid(), "there is a new spawner"
    for run in (first, third):
        run.signal(signal.SIGKILL)
        assert exit_code(run) == 137


def test_of_two_supervisors_for_a_run_one_does_nothing(spawner: SupervisorSpawner, tmp_path: Path) -> None:
    """As when a spawner dies after it has forked, before it has answered."""

    def twice(folder: Path, lock: int) -> None:
        spawner.start(folder, lock)
        start_directly(folder, lock)

    for number in range(5):
        run = start(tmp_path / str(number), f"echo ran >> {tmp_path}/runs{number}", twice)
        assert exit_code(run) == 0
        wait_for_the_supervisor_to_end(run)
        assert (tmp_path / f"runs{number}").read_text() == "ran\n"


def test_a_path_that_is_longer_than_a_command_line_can_be_is_cut(spawner: SupervisorSpawner, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 200] * 15)
    folder.mkdir(parents=True)
    assert exit_code(start(folder / "run", "exit 5", spawner.start)) == 5
