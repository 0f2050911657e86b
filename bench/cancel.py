"""Benchmarks the cancellation of a step: from SIGTERM to the moment when a watch shows that its TrainJob is suspended.

A process runs `run_step` against an embedded control plane in another process, over HTTPS, and gets the signal while it waits.
`at once` is how a step of Kubeflow Pipelines does it, which is killed within a second: a thread sends one prepared patch. The
baseline, `ordinary`, is what the same client does otherwise: it ends its wait, reads the job, and then patches it. Both are
measured in turns, in the same run.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from trainwright.api.kinds import POD, TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.jobs import Identity

REPETITIONS = 30
GOAL_MS = 50.0
TIMEOUT_SECONDS = 60.0
WAYS = {"at once": True, "ordinary": False}
"""Whether the step suspends its job at once."""
PROGRAM = """
import sys
from trainwright.jobs import Identity, Submission, TrainRequest, Waiting, run_step
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.state.cancel import cancel_by_suspending
from trainwright.submission import connect_for_jobs

kubeconfig, run, suspends_at_once = sys.argv[1:]
request = TrainRequest.parse({"runtime": "torch-distributed", "command": ["sleep", "600"]})
on_signal = None if suspends_at_once == "True" else cancel_by_suspending
submission = Submission(connect_for_jobs(kubeconfig), request, Identity("bench", run, "train"), "default")
try:
    run_step(submission, Waiting.of(request, on_signal=on_signal))
except Cancelled:
    sys.exit(3)
"""


class Watch:
    """Every state of the TrainJobs from now on, with the time at which it was received."""

    def __init__(self, cluster: KubernetesCluster):
        self._cluster, self._version = cluster, cluster.list(TRAINJOB, "default").resource_version
        self._seen: queue.Queue[tuple[float, Obj]] = queue.Queue()
        threading.Thread(target=self._follow, daemon=True).start()

    def next(self, name: str) -> tuple[float, Obj]:
        """The next state of a job. Raises queue.Empty."""
        while True:
            when, job = self._seen.get(timeout=TIMEOUT_SECONDS)
            if name_of(job) == name:
                return when, job

    def _follow(self) -> None:
        for event in self._cluster.watch(TRAINJOB, "default", resource_version=self._version, timeout_seconds=3600):
            self._seen.put((time.monotonic(), event.object))


def measure(cluster: KubernetesCluster, kubeconfig: Path, run: str, pause: float, *, at_once: bool) -> float:
    """Milliseconds from the signal until the watch shows the suspension; `pause` is the seconds that the job runs before."""
    name, watch = Identity("bench", run, "train").name(), Watch(cluster)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(kubeconfig), run, str(at_once)])
    try:
        while not _is_running(watch.next(name)[1]):
            pass
        time.sleep(pause)
        sent = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        while True:
            received, job = watch.next(name)
            if job["spec"].get("suspend"):
                break
        if process.wait(TIMEOUT_SECONDS) != 3:
            raise SystemExit(f"the step ended with {process.returncode}, not cancelled")
    finally:
        process.kill()
        process.wait()
        cluster.delete(TRAINJOB, name, "default", propagation="Foreground")
        _wait_until_gone(cluster)
    return 1000 * (received - sent)


def _is_running(job: Obj) -> bool:
    return any(step["ready"] for step in (job.get("status") or {}).get("jobsStatus") or [])


def _wait_until_gone(cluster: KubernetesCluster) -> None:
    """Wait until no pod of an earlier repetition is left, which would disturb the next one."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while cluster.list(POD, "default").items or cluster.list(TRAINJOB, "default").items:
        if time.monotonic() > until:
            raise SystemExit(f"pods or jobs were left after {TIMEOUT_SECONDS:g} s")
        time.sleep(0.05)


def _row(way: str, times: list[float]) -> str:
    median, p95 = statistics.median(times), sorted(times)[int(0.95 * (len(times) - 1) + 0.5)]
    return f"{way:10} median {median:6.1f} ms   p95 {p95:6.1f} ms   maximum {max(times):6.1f} ms   ({len(times)} steps)"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repetitions", type=int, default=REPETITIONS)
    arguments.add_argument("--seed", type=int, default=1, help="of the times at which the signals are sent")
    chosen = arguments.parse_args()
    pauses = random.Random(chosen.seed)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            cluster = connect(embedded=home)
            for number in range(chosen.repetitions):
                for way, at_once in WAYS.items():
                    run, pause = f"{way.replace(' ', '-')}-{number}", pauses.uniform(0.5, 1.5)
                    times[way].append(measure(cluster, home / "kubeconfig", run, pause, at_once=at_once))
        finally:
            down = [sys.executable, "-m", "trainwright.cli", "down", "--home", str(home)]
            subprocess.run(down, check=False, capture_output=True)
    print("from SIGTERM to the suspension that a watch shows")
    for way, measured in times.items():
        print(_row(way, measured))
    median = {way: statistics.median(measured) for way, measured in times.items()}
    share = sum(each <= GOAL_MS for each in times["at once"]) / chosen.repetitions
    print(
        f"ratio of the medians {median['at once'] / median['ordinary']:.2f}   goal {GOAL_MS:g} ms, met by {share:.0%} of the steps"
    )


if __name__ == "__main__":
    main()
