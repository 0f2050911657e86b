"""Benchmarks the embedded node: the start of a pod against the bare start of the same process, many short pods, idle pods.

`submit` is the time from the request that creates a pod, over HTTPS to a control plane in a process of its own, to the first line
of its program, which prints the time; `bare` that of the same program as a child of this process. They are measured in turns, with
and without isolation. Then a hundred pods of `true`, and what fifty idle pods and their supervisors cost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of
from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.embedded.home import Home

GOALS = {"start": 60.0, "many": 6.0, "idle": 1.0, "supervisor": 8.0, "isolation": 15.0}
"""Milliseconds over the bare start; seconds; per cent of a core; MB; milliseconds a pod."""
STARTS, MANY, IDLE = 21, 100, 50
IDLE_SECONDS, TIMEOUT_SECONDS = 20.0, 120.0
_POLL_SECONDS = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
PROGRAM = [sys.executable, "-I", "-c", "import time; print(time.time(), flush=True)"]


@contextmanager
def control_plane(folder: Path, isolation: str) -> Iterator[tuple[KubernetesCluster, Home]]:
    """A client of a fresh cluster, and its home. `isolation` is on or off."""
    home = Home(folder / isolation)
    command = [sys.executable, "-m", "trainwright.cli"]
    variables = {**os.environ, "TRAINWRIGHT_ISOLATION": isolation}
    subprocess.run([*command, "up", "--home", str(home.path)], env=variables, check=True, capture_output=True)
    try:
        yield connect(home.kubeconfig), home
    finally:
        subprocess.run([*command, "down", "--home", str(home.path)], check=True, capture_output=True)


def pod(name: str, command: list[str], grace: int = 0) -> Obj:
    """A pod that runs once."""
    container = {"name": "main", "image": "bench.local/program:1", "command": command}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def bare_start() -> float:
    """Milliseconds until the first line of the program as a child of this process."""
    began = time.time()
    done = subprocess.run(PROGRAM, capture_output=True, text=True, check=True)
    return (float(done.stdout) - began) * 1000


def pod_start(cluster: KubernetesCluster, name: str) -> float:
    """Milliseconds from the request until the first line of the program as a pod."""
    began = time.time()
    cluster.create(pod(name, PROGRAM))
    wait_until_ended(cluster, [name])
    line = b"".join(cluster.logs(name, "default"))
    return (float(line) - began) * 1000


def wait_until_ended(cluster: KubernetesCluster, names: list[str], phases: tuple[str, ...] = ("Succeeded", "Failed")) -> None:
    """Wait until all these pods are in one of the phases."""
    deadline, waiting = time.monotonic() + TIMEOUT_SECONDS, set(names)
    while waiting:
        assert time.monotonic() < deadline, f"{len(waiting)} pods did not become {' or '.join(phases)}"
        time.sleep(_POLL_SECONDS)
        waiting -= {name_of(each) for each in cluster.list(POD, "default").items if each["status"].get("phase") in phases}


def many_pods(cluster: KubernetesCluster) -> float:
    """Seconds from the first request until all pods of `true` have succeeded."""
    names = [f"many-{index}" for index in range(MANY)]
    began = time.monotonic()
    for name in names:
        cluster.create(pod(name, ["true"]))
    wait_until_ended(cluster, names, ("Succeeded",))
    return time.monotonic() - began


def idle_pods(cluster: KubernetesCluster, home: Home) -> tuple[float, float]:
    """Per cent of a core that idle pods cost with their supervisors and the control plane, and a supervisor's memory in MB."""
    names = [f"idle-{index}" for index in range(IDLE)]
    for name in names:
        cluster.create(pod(name, ["sleep", "3600"]))
    wait_until_ended(cluster, names, ("Running",))
    running = home.running()
    assert running is not None
    ours = [pid for pid in _processes() if str(home.path) in _command_line(pid)]
    supervisors = [pid for pid in ours if "supervise.py" in _command_line(pid)]
    watched = {running.pid, *ours}
    time.sleep(2)  # their starts are over
    began, used = time.monotonic(), sum(map(_seconds_used, watched))
    time.sleep(IDLE_SECONDS)
    share = (sum(map(_seconds_used, watched)) - used) / (time.monotonic() - began) * 100
    return share, statistics.median(map(_proportional_megabytes, supervisors))


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()


def _seconds_used(pid: int) -> float:
    return sum(map(int, _fields(pid)[11:13])) / _TICKS


def _proportional_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def main() -> int:
    """Print the table. 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=STARTS, help="pods whose start is measured")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as scratch,
        control_plane(Path(scratch), "on") as (isolated, home),
        control_plane(Path(scratch), "off") as (plain, _),
    ):
        bare, on, off = [], [], []
        for index in range(arguments.starts + 1):  # the first ones warm up
            bare.append(bare_start())
            on.append(pod_start(isolated, f"start-{index}"))
            off.append(pod_start(plain, f"start-{index}"))
        seconds = many_pods(isolated)
        share, megabytes = idle_pods(isolated, home)
    base, with_isolation, without = (statistics.median(each[1:]) for each in (bare, on, off))
    figures = {
        "start": (
            with_isolation - base,
            f"ms over the bare start ({with_isolation:.0f} : {base:.0f} = {with_isolation / base:.1f})",
        ),
        "many": (seconds, f"s for {MANY} pods of `true`"),
        "idle": (share, f"% of a core for {IDLE} idle pods"),
        "supervisor": (megabytes, "MB for a supervisor (its share of memory, median)"),
        "isolation": (with_isolation - without, "ms a pod for namespaces"),
    }
    for name, (value, what) in figures.items():
        print(f"{name:<11}{value:8.2f} {what}; goal {GOALS[name]:g}")
    return int(any(value > GOALS[name] for name, (value, _) in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
