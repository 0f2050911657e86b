"""Benchmarks waiting for many jobs in one process, with a local API server that counts the requests.

For each method and number of waiters: requests at the start and per minute afterwards, CPU time and memory of the waiting process,
and the time from a status change until the waiter returns. Methods: `triggers` (deferred TrainJobOperator without log and lease),
`defaults` (the same with its defaults for both) and `threads` (`wait_for`); their jobs run, with a pod each. Baselines: `alone`,
threads with a watch each, and `cncf`, the Job trigger of Airflow's Kubernetes provider, in its own virtual environment. The requests
of a submission are measured first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainwright.api.kinds import JOB, JOBSET, NAMESPACE, POD, TRAINJOB, Kind
from trainwright.cluster import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.jobs import Identity, Submission, TrainRequest, submit_or_adopt

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
CNCF = ["apache-airflow==3.3.2", "apache-airflow-providers-cncf-kubernetes"]
_AT = "2026-01-01T00:00:00Z"
READY = [{"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
DONE = {"type": "Complete", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": _AT}
ENDED = {
    TRAINJOB: {"conditions": [DONE], "jobsStatus": READY},
    JOB: {"conditions": [{**DONE, "type": "SuccessCriteriaMet"}, DONE], "startTime": _AT, "completionTime": _AT},
}
NO_CONTROLLER = "kueue.x-k8s.io/multikueue"
"""A manager that does not run, so that no controller handles the job."""
BEGIN_SECONDS, END_SECONDS = 300.0, 120.0


class Waiter:
    """A process that waits for jobs."""

    def __init__(self, python: Path, program: list[str], kubeconfig: str, jobs: list[dict[str, str]]):
        env = {**os.environ, "KUBECONFIG": kubeconfig, "AIRFLOW__CORE__LOAD_EXAMPLES": "false"}
        command = [str(python), *program]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self._send(json.dumps({"jobs": jobs}))

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def receive(self, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["what"] == what:
                return message
        raise SystemExit(f"the waiting process exited with {self._process.wait()} before sending {what!r}")

    def state(self) -> dict[str, Any]:
        self._send("")
        return self.receive("state")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def measure(cluster: KubernetesCluster, kubeconfig: str, how: str, waiters: int, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    namespace, kind = f"{how}-{waiters}", JOB if how == "cncf" else TRAINJOB
    cluster.create({"apiVersion": "v1", "kind": NAMESPACE.kind, "metadata": {"name": namespace}})
    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda number: _create_job(cluster, kind, namespace, number), range(waiters)))
    python, program = _program(how)
    before = _requests(cluster)
    with Waiter(python, program, kubeconfig, jobs) as waiter:
        waiter.receive("started")
        to_begin = _requests_when_idle(cluster) - before
        quiet, asked = waiter.state(), _requests(cluster)
        time.sleep(seconds)
        busy, a_minute = waiter.state(), (_requests(cluster) - asked) * 60 / seconds
        changed = {}
        for job in jobs:
            changed[job["name"]] = time.monotonic()
            cluster.patch(kind, job["name"], {"status": ENDED[kind]}, namespace, subresource="status")
        ended = waiter.receive("ended")
    latencies = sorted(ended["ended"][name] - at for name, at in changed.items())
    return {
        "how": how,
        "waiters": waiters,
        "requests_to_begin": to_begin,
        "requests_a_minute": round(a_minute, 1),
        "cpu_s_a_minute": round((busy["cpu_s"] - quiet["cpu_s"]) * 60 / seconds, 2),
        "rss_mib": round(busy["rss_mib"]),
        "peak_mib": round(ended["peak_mib"]),
        "cpu_s": round(ended["cpu_s"], 1),
        "p50_ms": round(1000 * latencies[len(latencies) // 2], 1),
        "p99_ms": round(1000 * latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))], 1),
    }


def submission(cluster: KubernetesCluster) -> dict[str, Any]:
    """The requests of the first submission of a process, and of later ones."""
    request = TrainRequest.parse(
        {
            "runtime": "torch-distributed",
            "command": ["true"],
            "labels": {"bench": "submit"},
            "placement": {"queue_name": "none"},
        }
    )
    counts = []
    for run in ("first", "second", "third"):
        before = _requests(cluster)
        submit_or_adopt(Submission(cluster, request, Identity("bench", run, "train"), "default"))
        counts.append(_requests(cluster) - before)
    return {"how": "submit", "requests_first": counts[0], "requests": counts[-1]}


def _program(how: str) -> tuple[Path, list[str]]:
    if how == "cncf":
        from support.client_environments import client_environment

        return client_environment("cncf", CNCF), [str(HERE / "waiters" / "cncf.py")]
    program = "triggers" if how in ("triggers", "defaults") else "threads"
    return Path(sys.executable), [str(HERE / "waiters" / f"{program}.py"), how]


def _create_job(cluster: KubernetesCluster, kind: Kind, namespace: str, number: int) -> dict[str, str]:
    spec: dict[str, Any] = {"runtimeRef": {"name": "torch-distributed"}, "managedBy": NO_CONTROLLER}
    if kind is JOB:
        container = {"name": "node", "image": "none"}
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}, "managedBy": NO_CONTROLLER}
    metadata = {"name": f"job-{number}", "namespace": namespace}
    made = cluster.create({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec})
    if kind is TRAINJOB:
        cluster.patch(kind, metadata["name"], {"status": {"jobsStatus": READY}}, namespace, subresource="status")
        _create_jobset(cluster, made)
        _create_pod(cluster, metadata["name"], namespace)
    return {**metadata, "uid": made["metadata"]["uid"]}


def _create_jobset(cluster: KubernetesCluster, trainjob: dict[str, Any]) -> None:
    """The JobSet of a job, as its controller makes it; suspended, so that it makes no pods."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none", "command": ["true"]}]}
    job = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": {"spec": pod}}
    about = trainjob["metadata"]
    owner = {
        "apiVersion": TRAINJOB.api_version,
        "kind": TRAINJOB.kind,
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }
    metadata = {"name": about["name"], "namespace": about["namespace"], "ownerReferences": [owner]}
    spec = {"suspend": True, "replicatedJobs": [{"name": "node", "template": {"spec": job}}]}
    cluster.create({"apiVersion": JOBSET.api_version, "kind": JOBSET.kind, "metadata": metadata, "spec": spec})


def _create_pod(cluster: KubernetesCluster, job: str, namespace: str) -> None:
    """A running pod of a job, which no scheduler takes and no kubelet knows."""
    labels = {f"jobset.sigs.k8s.io/{name}": value for name, value in (("jobset-name", job), ("replicatedjob-name", "node"))}
    spec = {"schedulerName": "none", "containers": [{"name": "node", "image": "none", "command": ["true"]}]}
    name = f"{job}-node-0-0"
    metadata = {"name": name, "namespace": namespace, "labels": {**labels, "batch.kubernetes.io/job-completion-index": "0"}}
    cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    container = {"name": "node", "ready": True, "restartCount": 0, "image": "none", "imageID": "", "state": {"running": {}}}
    status = {"phase": "Running", "startTime": _AT, "containerStatuses": [container]}
    cluster.patch(POD, name, {"status": status}, namespace, subresource="status")


def _requests(cluster: KubernetesCluster) -> int:
    """Requests handled by the server so far, without this one. Watches are counted when they end."""
    text = cluster._connection._exchange("get", "/metrics").data.decode()
    counts = re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.MULTILINE)
    if not counts:
        raise SystemExit("the API server's /metrics has no apiserver_request_total: nothing can be counted")
    return round(sum(float(count) for labels, count in counts if 'resource=""' not in labels))


def _requests_when_idle(cluster: KubernetesCluster) -> int:
    """The request count after the start: when it has not changed for two seconds, or after 30 seconds if waiters poll."""
    until, last = time.monotonic() + 30, -1
    while (now := _requests(cluster)) != last and time.monotonic() < until:
        last = now
        time.sleep(2)
    return now


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--triggers", type=int, nargs="*", default=[1, 100, 1000, 10000])
    arguments.add_argument("--defaults", type=int, nargs="*", default=[50])
    arguments.add_argument("--threads", type=int, nargs="*", default=[1, 100, 1000, 10000])
    arguments.add_argument("--alone", type=int, nargs="*", default=[100])
    arguments.add_argument("--cncf", type=int, nargs="*", default=[100, 1000])
    arguments.add_argument("--seconds", type=float, default=30.0)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            cluster = connect(embedded=home)
            cluster.list(NAMESPACE)  # so that there is something to count
            print(json.dumps(submission(cluster)), flush=True)
            for how in ("triggers", "defaults", "threads", "alone", "cncf"):
                for waiters in getattr(chosen, how):
                    row = measure(cluster, str(home / "kubeconfig"), how, waiters, chosen.seconds)
                    print(json.dumps(row), flush=True)
        finally:
            subprocess.run(
                [sys.executable, "-m", "trainwright.cli", "down", "--home", str(home)], check=False, capture_output=True
            )


if __name__ == "__main__":
    main()
