"""A node without space, inodes, file handles or threads: pods can still be deleted and end, and all goes on when there is more."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from factories import pod
from support.marked_pods import is_running, main_status, marked_pod, phase, processes_of, runs
from support.waiting import eventually

from trainwright.api.errors import ApiError
from trainwright.api.kinds import CONFIG_MAP, POD
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.cluster import connect
from trainwright.cluster.protocol import Cluster

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk, and finds processes in /proc"),
]
PROGRAM = """
import os, resource, subprocess, sys, threading
from pathlib import Path
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,nr_inodes=1000", "tmpfs", str(disk)], check=True)
print("mounted", flush=True)
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.home import Home
from trainwright.embedded.plane import ControlPlane
plane = ControlPlane(Home(disk / "home"), gates=FeatureGates())
plane.start()
print(plane._home.kubeconfig.read_text().replace("\\n", "\\0"), flush=True)
held, start = [], threading.Thread.start

def take_space():
    with open(disk / "filler", "wb", 0) as file:
        while file.write(bytes(4096)):
            pass

def take_inodes():
    (disk / "files").mkdir()
    for number in range(10_000):
        (disk / "files" / str(number)).touch()

def take_handles():
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, 4096))
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))

def take_threads():
    def refuse(thread):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse

def free():
    for number in held:
        os.close(number)
    held.clear()
    threading.Thread.start = start
    subprocess.run(["rm", "-rf", disk / "filler", disk / "files"], check=True)

for line in sys.stdin:
    try:
        globals()[line.strip()]()
    except OSError as error:
        print("taken", error.errno, flush=True)
    else:
        print("done", flush=True)
plane.stop(1)
"""
SHORTAGES = ("space", "inodes", "handles", "threads")


@pytest.fixture
def scarce(tmp_path: Path) -> Iterator[tuple[Cluster, Callable[[str], None]]]:
    """A cluster whose home is on a disk of 16 MB, and a function that makes the process `take_...` all there is, and `free` it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-c", PROGRAM, str(disk)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("needs the program unshare of util-linux, to mount a small disk")
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "mounted\n":
            pytest.skip("the kernel lets this user mount no small disk: user namespaces are forbidden")
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(process.stdout.readline().replace("\0", "\n"))

        def ask(what: str, to: IO[str] = process.stdin, answers: IO[str] = process.stdout) -> None:
            to.write(f"{what}\n")
            to.flush()
            assert answers.readline().startswith("done" if what in ("free", "take_threads") else "taken")

        yield connect(kubeconfig), ask
    finally:
        process.stdin.close()
        watchdog = threading.Timer(30, process.kill)
        watchdog.start()
        process.wait()
        watchdog.cancel()


@pytest.mark.parametrize("shortage", SHORTAGES)
def test_pods_are_deleted_while_there_is_no_room_and_start_when_there_is(
    scarce: tuple[Cluster, Callable[[str], None]], shortage: str
) -> None:
    cluster, ask = scarce
    pods = [
        cluster.create({**marked_pod("sleep 600"), "metadata": {"name": name, "namespace": "default"}})
        for name in ("kindly", "at-once", "p")
    ]
    for each in pods:
        eventually(lambda each=each: state(cluster, each).get("phase") == "Running")
    ask(f"take_{shortage}")
    create_until_refused(cluster)
    cluster.delete(POD, "kindly", "default")
    cluster.delete(POD, "at-once", "default", grace_period_seconds=0)
    if shortage != "handles":  # without any, the node can neither look at a process nor signal it
        eventually(lambda: {name_of(each) for each in cluster.list(POD).items} & {"kindly", "at-once"} == set())
    assert is_running(cluster), "the others run on"
    ask("free")
    eventually(lambda: {name_of(each) for each in cluster.list(POD).items} & {"kindly", "at-once"} == set())
    eventually(lambda: not [process for each in pods[:2] for process in processes_of(uid_of(each))], what="their processes end")
    eventually(lambda: try_to_create(cluster, pod("next", script="true")), what="a pod can be created")
    eventually(lambda: state(cluster, pod("next")).get("phase") == "Succeeded", what="the next pod runs")


def state(cluster: Cluster, each: Obj) -> Obj:
    return cluster.get(POD, name_of(each), "default").get("status") or {}


def create_until_refused(cluster: Cluster) -> None:
    """Create ten pods, and then objects as long as there is room."""
    for number in range(20):
        data = {"data": {"a": "x" * 500_000}}
        made = (
            pod(f"more-{number}", script="true")
            if number < 10
            else {**CONFIG, "metadata": {**META, "name": f"c{number}"}, **data}
        )
        if not try_to_create(cluster, made):
            return


META = {"namespace": "default"}
CONFIG = {"apiVersion": CONFIG_MAP.api_version, "kind": CONFIG_MAP.kind}


def try_to_create(cluster: Cluster, obj: Obj) -> bool:
    try:
        cluster.create(obj)
    except ApiError:
        return False
    return True


def test_an_end_while_the_disk_is_full_is_told_at_once(scarce: tuple[Cluster, Callable[[str], None]], tmp_path: Path) -> None:
    cluster, ask = scarce
    count, go = tmp_path / "count", tmp_path / "go"
    cluster.create(marked_pod(f"echo run >> {count}; while [ ! -e {go} ]; do sleep 0.05; done; exit 3"))
    eventually(lambda: is_running(cluster) and runs(count) == 1)
    ask("take_space")
    go.touch()
    eventually(lambda: phase(cluster) == "Failed", what="the pod fails")
    assert main_status(cluster)["state"]["terminated"]["exitCode"] == 3
    assert runs(count) == 1


def test_a_pod_that_finds_the_disk_full_starts_when_there_is_space(
    scarce: tuple[Cluster, Callable[[str], None]], tmp_path: Path
) -> None:
    cluster, ask = scarce
    count, go = tmp_path / "count", tmp_path / "go"
    script = f"echo run >> {count}; [ $(wc -l < {count}) -gt 1 ] && exit 0; while [ ! -e {go} ]; do sleep 0.05; done; exit 1"
    uid = uid_of(cluster.create(marked_pod(script, "OnFailure")))
    eventually(lambda: is_running(cluster) and runs(count) == 1)
    ask("take_space")
    go.touch()
    eventually(lambda: not processes_of(uid), what="the process ends")
    eventually(lambda: "waiting" in main_status(cluster)["state"], what="it cannot be started again")
    ask("free")
    eventually(lambda: phase(cluster) == "Succeeded", what="the pod is restarted, and succeeds")
    assert runs(count) == 2
