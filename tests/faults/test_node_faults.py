"""Kills of supervisors and control planes, a reboot and a jumping clock: nothing runs twice, and nothing is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.marked_pods import is_running, main_status, marked_pod, phase, processes, processes_of, runs
from support.waiting import eventually

from trainwright.api.kinds import POD
from trainwright.api.objects import uid_of
from trainwright.cluster import connect
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import start, stop
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane

pytestmark = pytest.mark.medium
ISOLATED, PLAIN = "namespaces", "plain processes"
linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    stop(home)


@pytest.fixture
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters with isolation, where the machine allows it, and without."""
    monkeypatch.setenv("TRAINWRIGHT_ISOLATION", "off" if request.param == PLAIN else "")


def counting(count: Path, then: str = "sleep 600") -> str:
    """A script that leaves a line each time it runs, and starts a process that leaves its group."""
    return f"echo run >> {count}; setsid sleep 600 & {then}"


def supervisors_of(uid: str) -> list[int]:
    return processes(
        lambda entry: uid.encode() in (entry / "cmdline").read_bytes() and b"supervise.py" in (entry / "cmdline").read_bytes()
    )


def kill(pids: list[int]) -> None:
    assert pids
    end(pids)


def end(pids: list[int]) -> None:
    """Kill those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@linux
@pytest.mark.usefixtures("isolation")
@pytest.mark.parametrize(("isolation", "restart"), [(ISOLATED, "OnFailure"), (PLAIN, "Never")], indirect=["isolation"])
def test_a_killed_supervisor_takes_its_container_with_it(home: Home, tmp_path: Path, restart: str) -> None:
    start(home)
    cluster, count = connect(home.kubeconfig), tmp_path / "count"
    uid = uid_of(cluster.create(marked_pod(counting(count), restart)))
    eventually(lambda: is_running(cluster) and runs(count) == 1)
    first = processes_of(uid)
    kill(supervisors_of(uid))
    if restart == "Never":
        eventually(lambda: phase(cluster) == "Failed", what="the pod fails")
        ended = main_status(cluster)["state"]["terminated"]
        assert processes_of(uid) == []
    else:
        eventually(lambda: main_status(cluster).get("restartCount") == 1 and is_running(cluster), what="a restart")
        ended = main_status(cluster)["lastState"]["terminated"]
        assert not set(first) & set(processes_of(uid))
        eventually(lambda: runs(count) == 2)
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert "supervisor was killed" in ended["message"]
    assert runs(count) == (1 if restart == "Never" else 2)


@linux
@pytest.mark.usefixtures("isolation")
@pytest.mark.parametrize(("isolation", "supervisors_first"), [(ISOLATED, True), (PLAIN, False)], indirect=["isolation"])
def test_supervisor_and_control_plane_killed_together(home: Home, tmp_path: Path, supervisors_first: bool) -> None:
    running, _ = start(home)
    cluster, count = connect(home.kubeconfig), tmp_path / "count"
    uid = uid_of(cluster.create(marked_pod(counting(count))))
    eventually(lambda: is_running(cluster) and runs(count) == 1)
    victims = [supervisors_of(uid), [running.pid]]
    for pids in victims if supervisors_first else reversed(victims):
        kill(pids)
    eventually(lambda: not home.is_locked())
    start(home)
    cluster = connect(home.kubeconfig)
    eventually(lambda: phase(cluster) == "Failed", what="the pod fails")
    eventually(lambda: not processes_of(uid), what="nothing stays running")
    assert main_status(cluster)["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert runs(count) == 1


@linux
def test_after_a_reboot_pods_fail_with_the_reason_and_no_stranger_is_touched(home: Home, tmp_path: Path) -> None:
    running, _ = start(home)
    cluster, count = connect(home.kubeconfig), tmp_path / "count"
    uid = uid_of(cluster.create(marked_pod(counting(count))))
    eventually(lambda: is_running(cluster) and runs(count) == 1)
    kill([running.pid, *supervisors_of(uid)])
    end(processes_of(uid))  # without isolation they outlive their supervisor, but no reboot
    eventually(lambda: not home.is_locked() and not processes_of(uid))
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        state = home.node / "pods" / uid / "containers/main/0/state.json"
        state.write_text(json.dumps({**json.loads(state.read_text()), "boot": "another", "pid": stranger.pid}))
        start(home)
        cluster = connect(home.kubeconfig)
        eventually(lambda: phase(cluster) == "Failed", what="the pod fails")
        ended = main_status(cluster)["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
        assert "the machine was restarted" in ended["message"]
        cluster.delete(POD, "p", "default")
        eventually(lambda: not cluster.list(POD, "default").items)
        assert stranger.poll() is None
        assert runs(count) == 1
    finally:
        stranger.kill()
        stranger.wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of this process, in seconds from the right time. Supervisors are processes of their own, with the right one."""
    offset, right = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: right() + offset[0])

    def jump(seconds: float) -> None:
        offset[0] = seconds

    return jump


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_neither_delays_a_restart_nor_repeats_one(
    tmp_path: Path, clock: Callable[[float], None], jump: float
) -> None:
    plane, count = ControlPlane(Home(tmp_path / "home"), gates=FeatureGates()), tmp_path / "count"
    plane.start()
    try:
        plane.cluster.create(
            marked_pod(f"echo run >> {count}; [ $(wc -l < {count}) -gt 2 ] && exec sleep 600; exit 1", "OnFailure")
        )
        eventually(lambda: main_status(plane.cluster).get("restartCount") == 1, what="the first restart, without a back-off")
        eventually(lambda: "waiting" in main_status(plane.cluster)["state"], what="the back-off of the second")
        clock(jump)
        eventually(lambda: is_running(plane.cluster), 15, "the second restart")  # in time: the back-off is 10 s
        assert main_status(plane.cluster)["restartCount"] == 2
        clock(0)
        plane.cluster.delete(POD, "p", "default")
        eventually(lambda: not plane.cluster.list(POD, "default").items, 15, "the deletion")
        assert runs(count) == 3
    finally:
        plane.stop(1)
