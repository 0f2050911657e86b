"""A real Airflow with an embedded cluster, whose training jobs end when a test lets them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from factories import replicated_job, runtime
from servers.airflow_server import AirflowServer, running_airflow
from servers.api_outage import Outage
from servers.celery_backend import celery_backend

from support.airflow_minors import NEWEST, AirflowMinor, older_minor
from support.built_wheel import unpacked_wheel
from support.client_environments import Unavailable
from support.running_plane import running_plane
from support.waiting import eventually
from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs.state.pods import pods_of
from trainwright.jobs.state.run_folder import label_value

CLAIM = "here"
QUEUES = "queues:\n- name: somebody\n  quota: {cpu: 1}\n"
"""On a cluster without any, a job in a queue is refused."""
TRAINJOB_URL = "https://dashboard.example.com/{namespace}/{name}"
WAITING, ENDED = ("running", "deferred"), ("success", "failed")


def runtime_of(folder: Path) -> dict[str, Any]:
    """A training program that ends once a file named after its job appears, well unless there is one called `JOB.fails`."""
    script = (
        "trap 'exit 143' TERM; "
        f'while [ ! -e {folder}/"$TRAINJOB_NAME" ] && [ ! -e {folder}/all ]; do sleep 0.1; done; '
        f'[ -e {folder}/"$TRAINJOB_NAME.fails" ] && echo "it was told to fail" && exit 3; true'
    )
    job = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
    container = {
        "name": "node",
        "image": "example.com/wait:1",
        "command": ["bash", "-c", script],
        "env": [{"name": "TRAINJOB_NAME", "valueFrom": job}],
        "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
    }
    volume = {"name": "initializer", "persistentVolumeClaim": {"claimName": "workspace"}}
    pod_spec = {"restartPolicy": "Never", "volumes": [volume], "containers": [container]}
    trains = replicated_job(step="trainer", backoffLimit=0, pod_spec=pod_spec)
    return runtime("wait-for-a-file", trains, labels={"trainer.kubeflow.org/framework": "plain"})


class Scene:
    """The cluster and the Airflow, and what a test asks of both. `outage` is the way of the connection `flaky` to the cluster."""

    def __init__(self, plane: ControlPlane, airflow: AirflowServer, go: Path, outage: Outage):
        self.plane, self.airflow, self.go, self.outage = plane, airflow, go, outage

    def jobs(self, run: str) -> list[dict[str, Any]]:
        return self.plane.cluster.list(TRAINJOB, label_selector=f"{names.AIRFLOW_RUN_LABEL}={label_value(run)}").items

    def all_jobs(self) -> list[dict[str, Any]]:
        return self.plane.cluster.list(TRAINJOB).items

    def the_job(self, run: str) -> dict[str, Any]:
        (job,) = self.jobs(run)
        return job

    def begin(self, dag: str, run: str) -> dict[str, Any]:
        """Trigger a run, and wait until its job's program runs and its task waits for it; returns the job."""
        (job,) = self.begin_all([(dag, run)])
        return job

    def begin_all(self, dag_runs: list[tuple[str, str]]) -> list[dict[str, Any]]:
        """Begin several runs at once."""
        for dag, run in dag_runs:
            self.airflow.trigger(dag, run)
        return [self._begun(dag, run) for dag, run in dag_runs]

    def wait_for_program(self, run: str) -> None:
        """Wait until the program of a run's job runs."""
        eventually(lambda: any(self.runs(job) for job in self.jobs(run)), 60, f"the job of {run}")

    def _begun(self, dag: str, run: str) -> dict[str, Any]:
        self.wait_for_program(run)
        self.next_try(dag, run, 1)
        return self.the_job(run)

    def runs(self, job: dict[str, Any]) -> bool:
        pods = pods_of(self.plane.cluster, job)
        return any((pod.get("status") or {}).get("phase") == "Running" for pod in pods)

    def is_followed_anew(self, dag: str, run: str) -> bool:
        """Whether another process than the first one follows the job of a run."""
        return "event=trainjob_adopted" in self.airflow.log(dag, run)

    def pid(self, dag: str, run: str) -> int:
        return int(eventually(lambda: self.airflow.task(dag, run)["pid"], 30, "the task's process"))

    def let_end(self, run: str, *, well: bool = True) -> None:
        """Let the programs of a run's jobs end."""
        for job in self.jobs(run):
            if not well:
                (self.go / f"{job['metadata']['name']}.fails").touch()
            (self.go / job["metadata"]["name"]).touch()

    def finish(self, dag: str, run: str, *, tries: int) -> None:
        """Let its jobs end well; the task must succeed in that try."""
        self.let_end(run)
        task = self.ended(dag, run)
        assert (task["state"], task["try_number"]) == ("success", tries), self.airflow.log(dag, run)

    def ended(self, dag: str, run: str, seconds: float = 90) -> dict[str, Any]:
        """The task of a run, as soon as it has ended."""

        def end() -> dict[str, Any] | None:
            task = self.airflow.task(dag, run)
            return task if task["state"] in ENDED else None

        return eventually(end, seconds, f"the task of {run} to end")

    def next_try(self, dag: str, run: str, number: int) -> None:
        """Wait until that try of the task waits for its job, in a worker or in the triggerer."""
        try:
            eventually(lambda: self._waits(dag, run, number), 90, f"try {number} of {run} to wait")
        except AssertionError as error:
            task = self.airflow.task(dag, run)
            error.add_note(f"it is {task['state']} in try {task['try_number']}; its logs:\n{self.airflow.log(dag, run)}")
            raise

    def _waits(self, dag: str, run: str, number: int) -> bool:
        task = self.airflow.task(dag, run)
        if task["try_number"] != number or task["state"] not in WAITING:
            return False
        pattern = f"attempt={number}.log" if task["state"] == "running" else f"attempt={number}.log.trigger.*"
        return '"Running"' in self.airflow.log(dag, run, pattern)

    def stopped(self, run: str, *, jobs: int = 1) -> None:
        """Wait until exactly so many jobs of a run are there, each suspended or ended, and none has a pod that runs."""

        def none_runs() -> bool:
            return not any(self.runs(job) for job in self.jobs(run))

        eventually(none_runs, 60, f"the pods of {run} to end")
        found = self.jobs(run)
        assert len(found) == jobs, [name_of(job) for job in found]
        assert all(job["spec"].get("suspend") or _has_ended(job) for job in found)


def _has_ended(job: dict[str, Any]) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or []
    return any(entry["type"] in ("Complete", "Failed") and entry["status"] == "True" for entry in conditions)


@contextmanager
def running_scene(folder: Path, dags: str, known: tuple[str, ...], minor: AirflowMinor | None = None) -> Iterator[Scene]:
    """Both, with these DAGs, of which `known` are waited for. Connections: `cluster`, and `flaky`, which can have an outage."""
    folder_of_dags, go = folder / "dags", folder / "go"
    folder_of_dags.mkdir()
    go.mkdir()
    (folder_of_dags / "training.py").write_text(dags, "utf-8")
    with running_plane(folder, queues=QUEUES) as plane:
        plane.cluster.create(runtime_of(go))
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        metadata = {"name": CLAIM, "namespace": "default"}
        plane.cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim})
        (folder / "outage").mkdir()
        with Outage(folder / "outage", plane._home.kubeconfig, 1, None, is_restart=True) as outage:
            connections = {
                f"AIRFLOW_CONN_{name}": orjson.dumps(
                    {"conn_type": "trainwright", "extra": {"kubeconfig": str(path), "trainjob_url": TRAINJOB_URL}}
                ).decode()
                for name, path in (("CLUSTER", plane._home.kubeconfig), ("FLAKY", outage.kubeconfig))
            }
            with running_airflow(folder / "airflow", folder_of_dags, connections, minor) as airflow:
                eventually(lambda: all(map(airflow.knows, known)), 60, "the DAGs")
                yield Scene(plane, airflow, go, outage)
                (go / "all").touch()


@contextmanager
def airflow_under_test(folder: Path, wheel: Path) -> Iterator[AirflowMinor]:
    """The minor that TRAINWRIGHT_AIRFLOW names, with the executor that TRAINWRIGHT_EXECUTOR names; skips what cannot be had here."""
    version = os.environ.get("TRAINWRIGHT_AIRFLOW") or NEWEST
    try:
        if os.environ.get("TRAINWRIGHT_EXECUTOR") == "celery":
            folder.mkdir()
            with celery_backend(folder, unpacked_wheel(wheel)) as minor:
                yield minor
        else:
            yield AirflowMinor() if version == NEWEST else older_minor(version, unpacked_wheel(wheel))
    except Unavailable as error:
        pytest.skip(str(error))
