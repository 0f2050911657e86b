"""The control plane as a process: up, down, a second up, a taken port, and kill -9 at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import pod as pod_with
from factories import trainjob
from support.container_processes import has_ended, host_pid
from support.rounds import IS_LONG
from support.waiting import eventually
from typer.testing import CliRunner, Result

from trainwright.api import names
from trainwright.api.conditions import is_true
from trainwright.api.errors import BadRequest
from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.cli import app
from trainwright.cluster import connect
from trainwright.embedded.home import Home, Running
from trainwright.embedded.lifecycle import StartFailed, control_planes, start, stop
from trainwright.jobs import wait_for
from trainwright.jobs.state.deadline_timer import Deadlines
from trainwright.jobs.state.progress import progress_of
from trainwright.jobs.wait.job_observer import WaitSettings

pytestmark = pytest.mark.medium
KILLS = 100 if IS_LONG else 12


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "höme with space")
    yield home
    stop(home)


def trainwright(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def up(home: Home, *more: str) -> str:
    done = trainwright("up", "--home", str(home.path), *more)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def submit(home: Home, script: str, name: str = "demo", nodes: int = 1) -> None:
    connect(home.kubeconfig).create(trainjob(name, script=script, nodes=nodes))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce RLIMIT_DATA")
def test_the_limit_of_memory_is_the_control_planes_alone(home: Home) -> None:
    up(home)
    running = home.running()
    assert running is not None
    assert resource.prlimit(running.pid, resource.RLIMIT_DATA)[0] == 4 * 1024**3
    script = "ulimit -S -d; while ! test -s probe; do sleep 0.05; done; cat probe"
    probe = {"exec": {"command": ["sh", "-c", "ulimit -S -d > probe"]}, "periodSeconds": 1}
    connect(home.kubeconfig).create(pod_with("p", script=script, container={"readinessProbe": probe}))

    def lines() -> list[bytes]:
        try:
            return b"".join(connect(home.kubeconfig).logs("p", "default")).splitlines()
        except BadRequest:  # it has not started
            return []

    expected = subprocess.run(["sh", "-c", "ulimit -S -d"], capture_output=True, check=True).stdout.strip()
    assert eventually(lambda: len(found := lines()) == 2 and found) == [expected, expected]


def test_up_prints_a_private_kubeconfig_once_more_while_it_runs_and_down_stops_it(home: Home) -> None:
    assert up(home) == str(home.kubeconfig)
    for path in home.path.rglob("*"):
        if path.exists() and not path.is_socket():
            assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) or (path.is_dir() and home.path in path.parents), path
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert connect(home.kubeconfig).list(TRAINJOB).items == []
    first = home.running()
    assert up(home) == str(home.kubeconfig)
    assert home.running() == first
    done = trainwright("status", "--home", str(home.path), "-o", "json")
    assert done.exit_code == 0
    assert '"running": true' in done.stdout
    assert trainwright("down", "--home", str(home.path)).exit_code == 0
    assert home.running() is None
    assert trainwright("status", "--home", str(home.path)).exit_code == 1
    assert trainwright("down", "--home", str(home.path)).exit_code == 0


def test_several_run_side_by_side_and_state_survives_down(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    up(home)
    up(other, "--port", "0")
    submit(home, "true")
    wait_for(connect(home.kubeconfig), connect(home.kubeconfig).get(TRAINJOB, "demo", "default"))
    assert connect(other.kubeconfig).list(TRAINJOB).items == []
    stop(other)
    stop(home)
    up(home)
    assert is_true(connect(home.kubeconfig).get(TRAINJOB, "demo", "default"), "Complete")


def test_a_port_in_use_gets_a_clear_message(home: Home) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = trainwright("up", "--home", str(home.path), "--port", str(port))
    assert done.exit_code == 1
    assert f"port {port}" in done.stderr
    assert "in use" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert up(home)  # the failed start left nothing in the way


def test_a_queue_admits_one_after_the_other_also_after_kill_9(home: Home, tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text("queues: [{name: one-by-one, quota: {pods: 1}}]")
    up(home, "--queues", str(queues))
    cluster = connect(home.kubeconfig)
    for name in ("first", "second"):
        script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
        cluster.create(trainjob(name, script=script, labels={names.QUEUE_LABEL: "one-by-one"}, suspend=True))
    assert eventually(lambda: not cluster.get(TRAINJOB, "first", "default")["spec"]["suspend"])
    running = home.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    assert eventually(lambda: not home.is_locked())
    up(home)
    cluster = connect(home.kubeconfig)
    waiting = cluster.get(TRAINJOB, "second", "default")
    assert eventually(lambda: "1 more of pods needed" in progress_of(cluster.get(TRAINJOB, "second", "default")).note)
    (tmp_path / "go").touch()
    done = wait_for(cluster, waiting)
    assert is_true(done, "Complete")
    assert is_true(cluster.get(TRAINJOB, "first", "default"), "Complete")


def kill(home: Home) -> None:
    running = home.running()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    eventually(lambda: not home.is_locked())


def test_after_kill_9_running_pods_are_adopted_and_ended_ones_accounted_for(home: Home, tmp_path: Path) -> None:
    up(home)
    starts, go, ended = tmp_path / "starts", tmp_path / "go", tmp_path / "ended"
    submit(home, f"echo $$ >> {starts}; while [ ! -e {go} ]; do sleep 0.05; done; touch {ended}", "short")
    submit(home, f"echo $$ >> {starts}; while [ ! -e {go}-on ]; do sleep 0.05; done", "long")
    eventually(lambda: starts.exists() and len(starts.read_text().splitlines()) == 2)
    eventually(lambda: {pod["status"].get("phase") for pod in connect(home.kubeconfig).list(POD, "default").items} == {"Running"})
    kill(home)
    go.touch()
    eventually(ended.exists)
    up(home)
    cluster = connect(home.kubeconfig)
    wait_for(cluster, cluster.get(TRAINJOB, "short", "default"))
    Path(f"{go}-on").touch()
    wait_for(cluster, cluster.get(TRAINJOB, "long", "default"))
    assert len(starts.read_text().splitlines()) == 2, "neither ran twice"
    statuses = [pod["status"]["containerStatuses"][0] for pod in cluster.list(POD, "default").items]
    assert [status["restartCount"] for status in statuses] == [0, 0]


@pytest.mark.slow
def test_kills_at_random_moments_never_lose_or_double_a_job(home: Home, tmp_path: Path) -> None:
    """Kill -9 while jobs are submitted, start and end: every job completes, and no pod's program ran twice at once."""
    dice = random.Random(7)
    up(home)
    names = []
    for number in range(KILLS):
        name = f"job-{number}"
        starts = tmp_path / name
        names.append(name)
        mark = f"{starts}-$PET_NODE_RANK-running"
        script = f"mkdir {mark} || exit 99; sleep 0.{dice.randint(0, 9)}; rmdir {mark}"
        submit(home, script, name, nodes=2)
        running = home.running()
        assert running is not None
        threading.Event().wait(dice.random() * 0.6)  # a random moment is what is tested here
        kill(home)
        up(home)
        # A container is given up if the control plane ends twice while it is prepared: each meets one kill.
        eventually(lambda name=name: has_been_prepared(home, name), 60, f"the pods of {name}")
    cluster = connect(home.kubeconfig)
    for name in names:
        # The deadline's error tells why a job that does not end is waiting, which a stopped test does not.
        settings = WaitSettings(deadlines=Deadlines(total=100))
        done = wait_for(cluster, cluster.get(TRAINJOB, name, "default"), settings)
        assert done["status"]["jobsStatus"][0]["succeeded"] == 1
    assert not list(tmp_path.glob("*-running"))
    for pod in cluster.list(POD, "default").items:
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, pod["metadata"]["name"]


def has_been_prepared(home: Home, name: str) -> bool:
    """Whether both pods of a job have run, or run."""
    pods = connect(home.kubeconfig).list(POD, "default", label_selector=f"{names.JOBSET_NAME_LABEL}={name}").items
    return len(pods) == 2 and all(pod["status"].get("phase", "Pending") != "Pending" for pod in pods)


def processes(home: Home) -> list[int]:
    return [process.pid for process in control_planes(home)]


def ends_soon(home: Home) -> str:
    """What `down` prints; it takes ten seconds at most, and nothing of the home is left."""
    began = time.monotonic()
    done = trainwright("down", "--home", str(home.path))
    assert done.exit_code == 0, done.stderr
    assert time.monotonic() - began < 10 + 2  # and the start of Python
    assert processes(home) == []
    assert not home.is_locked()
    return done.stderr.split(":")[0]


def pod_of(home: Home, tmp_path: Path, script: str = "") -> int:
    """The process of a pod that runs until it is killed."""
    pid = tmp_path / "pid"
    submit(home, f"{script} echo $BASHPID > {pid}.new; mv {pid}.new {pid}; while true; do sleep 0.2; done")
    eventually(pid.exists)
    (pod,) = connect(home.kubeconfig).list(POD, "default").items
    return host_pid(int(pid.read_text()), uid_of(pod))


def test_down_ends_a_stopped_control_plane_with_its_pods(home: Home, tmp_path: Path) -> None:
    up(home)
    pod = pod_of(home, tmp_path)
    (pid,) = processes(home)
    os.kill(pid, signal.SIGSTOP)
    assert ends_soon(home) == "stopped"
    assert has_ended(pid)
    assert has_ended(pod)


@pytest.mark.slow
def test_down_kills_what_does_not_listen(home: Home, tmp_path: Path) -> None:
    """A control plane whose interpreter is busy, and a pod that ignores SIGTERM."""
    up(home)
    pod = pod_of(home, tmp_path, "trap '' TERM;")
    (pid,) = processes(home)
    stopped = threading.Event()

    def keep_stopped() -> None:
        while not stopped.wait(0.001):
            if has_ended(pid):
                return
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    thread = threading.Thread(target=keep_stopped)
    thread.start()
    try:
        assert ends_soon(home) == "stopped"
    finally:
        stopped.set()
        thread.join()
    assert has_ended(pod)


def test_down_ends_what_a_killed_control_plane_left(home: Home, tmp_path: Path) -> None:
    up(home)
    pod = pod_of(home, tmp_path)
    kill(home)
    assert not has_ended(pod)
    assert ends_soon(home) == "stopped"
    assert has_ended(pod)
    assert ends_soon(home) == "not running"


def test_down_ends_only_its_own(home: Home, tmp_path: Path) -> None:
    """Not another home's, nor a process that took over an announced process id."""
    other = Home(tmp_path / "home")
    up(other)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)", "--home", str(home.path)])
    try:
        home.make()
        home.announce(Running(bystander.pid, 1, "https://127.0.0.1:1", "", True, (), "normal", {}))
        assert ends_soon(home) == "not running"
        assert bystander.poll() is None
        assert len(processes(other)) == 1
    finally:
        bystander.kill()
        bystander.wait()
        stop(other)


def test_down_ends_a_start_that_is_not_finished(home: Home) -> None:
    starting = subprocess.Popen([sys.executable, "-m", "trainwright.cli", "up", "--home", str(home.path)], stderr=subprocess.PIPE)
    (pid,) = eventually(lambda: processes(home))
    os.kill(pid, signal.SIGSTOP)
    assert ends_soon(home) == "stopped"
    assert starting.wait(30) == 1
    assert starting.stderr is not None
    starting.stderr.close()


def test_a_start_that_takes_too_long_leaves_nothing(home: Home) -> None:
    failed: list[StartFailed] = []

    def begin() -> None:
        try:
            start(home, seconds=3)
        except StartFailed as error:
            failed.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    (pid,) = eventually(lambda: processes(home))
    while thread.is_alive() and not has_ended(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        thread.join(0.001)
    thread.join()
    assert "was not ready after 3 s" in str(failed[0])
    assert processes(home) == []
    assert up(home)


def test_control_plane_that_an_earlier_installation_started_is_found(home: Home) -> None:
    home.make()
    program = "import signal; signal.pause()"
    words = [sys.executable, "-c", program, "-m", "trainwright.controlplane", "--home", str(home.path)]
    with subprocess.Popen(words) as process:
        try:
            eventually(lambda: [found.pid for found in control_planes(home)] == [process.pid])
        finally:
            process.kill()
