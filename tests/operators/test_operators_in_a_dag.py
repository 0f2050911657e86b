"""A DAG of these operators in Airflow itself: it promotes from one task to the next, and cleans up after a training that failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow_programs import run_dag
from support.cluster_under_test import embedded

from trainwright.api.kinds import TRAINJOB
from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.checkpoints.promotion import Alias
from trainwright.cluster import connect
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.slow
DAG = """
import os

from airflow.sdk import DAG, TriggerRule, task

from trainwright.operators import (
    CleanUpOperator, PromoteModelOperator, ResumeTrainJobOperator, RollBackModelOperator, SuspendTrainJobOperator
)

ROOT, URIS, DIGESTS = os.environ["EXPORTS"], os.environ["URIS"].split(), os.environ["DIGESTS"].split()


@task
def evaluate(loss: float) -> dict:
    return {"loss": loss, "dataset_digest": "sha256:d"}


def submit(step: str, run_id: str) -> str:
    from trainwright.jobs import Identity, Submission, TrainRequest, submit_or_adopt
    from trainwright.submission import connect_for_jobs

    request = TrainRequest.parse({"runtime": "torch-distributed", "command": ["true"]})
    submitted = submit_or_adopt(Submission(connect_for_jobs(), request, Identity("airflow/guarded", run_id, step), "default"))
    return submitted.trainjob["metadata"]["name"]


@task
def submit_only(run_id=None) -> str:
    return submit("first", run_id)


@task
def train(run_id=None) -> None:
    submit("train", run_id)
    raise RuntimeError("the worker is lost")


with DAG("guarded", schedule=None, params={"mode": "suspend"}) as dag:
    promoted = []
    for name, number, loss in (("promote-first", 0, 2.0), ("promote-better", 1, "1.5"), ("keep", 0, 1.8)):
        promoted.append(
            PromoteModelOperator(
                task_id=name, export_uri=ROOT, checkpoint_uri=URIS[number], checkpoint_digest=DIGESTS[number],
                evaluation=evaluate.override(task_id=f"evaluate-{name}")(float(loss)),
            )
        )
    roll_back = RollBackModelOperator(task_id="roll-back", export_uri=ROOT, retries=1)
    name = submit_only()
    by_name = {"trainjob": name, "namespace": "default"}
    suspend = SuspendTrainJobOperator(task_id="suspend", **by_name)
    resume = ResumeTrainJobOperator(task_id="resume", trainjob="{{ ti.xcom_pull(task_ids='submit_only') }}")
    clean_up = CleanUpOperator(task_id="clean-up", on_failure="{{ params.mode }}", trigger_rule=TriggerRule.ALL_DONE)
    if "TEARDOWN" in os.environ:
        clean_up = clean_up.as_teardown()
    promoted[0] >> promoted[1] >> promoted[2] >> roll_back >> clean_up
    suspend >> resume >> train() >> clean_up
"""


def write_export(folder: Path, run: str) -> tuple[str, str]:
    """URI and digest of an export."""
    target = folder / run / "checkpoint-5"
    target.mkdir(parents=True)
    files = (ManifestFile(path="model.safetensors", size=0, sha256="e" * 64, key="attempt/model.safetensors"),)
    manifest = Manifest(format="model", step=5, source=run, created="2026-01-01T00:00:00Z", confirmed="checked", files=files)
    (target / MANIFEST).write_bytes(manifest.text())
    return str(StorageUri.from_path(target)), manifest.digest


@pytest.mark.parametrize(("env", "state"), [({}, "success"), ({"TEARDOWN": "1"}, "failed")], ids=["all done", "teardown"])
def test_dag_promotes_rolls_back_and_cleans_up_after_a_failure(tmp_path: Path, env: dict[str, str], state: str) -> None:
    exports = [write_export(tmp_path / "exports", name) for name in ("a", "b")]
    root = str(StorageUri.from_path(tmp_path / "exports"))
    uris, digests = (" ".join(part) for part in zip(*exports, strict=True))
    with embedded(tmp_path / "cluster", node=False) as kubeconfig:
        env = {**env, "EXPORTS": root, "URIS": uris, "DIGESTS": digests}
        found = run_dag(tmp_path, DAG, KUBECONFIG=str(kubeconfig), **env)
        jobs = connect(kubeconfig).list(TRAINJOB, "default").items
    states = {name: state for name, (state, _) in found.items()}
    assert states.pop("") == state, "the last tasks decide the state of the run, but not teardowns"
    assert states.pop("train") == "failed"
    assert set(states.values()) == {"success"}, states
    results = {name: result for name, (_, result) in found.items()}
    assert [results[name]["promoted"] for name in ("promote-first", "promote-better", "keep")] == [True, True, False]
    assert results["keep"]["reason"] == "not better: loss 1.8 against 1.5"
    assert results["keep"]["previous_uri"] == exports[0][0]
    assert results["roll-back"] == exports[0][0]
    record = Alias(root).read()
    assert record is not None
    assert record.current.uri == exports[0][0]
    assert results["suspend"][0]["name"] == results["resume"][0]["name"] == results["submit_only"]
    assert results["resume"][0]["outcome"] == "it is resumed"
    assert {job["name"] for job in results["clean-up"]} == {job["metadata"]["name"] for job in jobs}
    assert len(jobs) == 2
    assert all(job["spec"]["suspend"] for job in jobs)


OUTPUTS = """
from datetime import date, datetime, timedelta, timezone

from airflow.sdk import DAG, task

with DAG("guarded", schedule=None) as dag:
    small = {"num_nodes": 1, "num_proc_per_node": 1, "resources_per_node": {"cpu": "1m", "memory": "300Mi"}}

    @task.trainjob(multiple_outputs=True, **small)
    def fit(steps: int):
        return {"loss": 0.5, "steps": steps}

    @task.trainjob(deferrable=True, deferral={"min_defer_seconds": 1}, **small)
    def annotated(steps: int) -> dict[str, int]:
        return {"steps": steps}

    @task
    def moment():
        return datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc)

    @task.trainjob(**small)
    def dated(since: datetime, start: datetime, end: datetime, days: list[date], most: timedelta) -> dict[str, str]:
        return {"since": repr(since), "start": str(start.utcoffset()), "end": repr(end), "days": repr(days), "most": repr(most)}

    @task
    def show(loss, steps):
        return [loss, steps]

    end = datetime(2026, 10, 25, 2, 30, 0, 7, timezone(timedelta(hours=1)))
    dated(moment(), "{{ dag_run.run_after }}", end, ["{{ '2026-01-31' }}", date(2024, 2, 29)], timedelta(hours=1))
    show(fit(3)["loss"], annotated(4)["steps"])
"""


def test_entries_of_a_returned_dict_are_xcoms(tmp_path: Path) -> None:
    with embedded(tmp_path / "cluster", node=True) as kubeconfig:
        found = run_dag(tmp_path, OUTPUTS, KUBECONFIG=str(kubeconfig))
    assert found["show"] == ["success", [0.5, 4]]
    assert found["fit"] == ["success", {"loss": 0.5, "steps": 3}]
    assert found["dated"] == [
        "success",
        {
            "since": "datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.timezone.utc)",
            "start": "0:00:00",
            "end": "datetime.datetime(2026, 10, 25, 2, 30, 0, 7, tzinfo=datetime.timezone(datetime.timedelta(seconds=3600)))",
            "days": "[datetime.date(2026, 1, 31), datetime.date(2024, 2, 29)]",
            "most": "datetime.timedelta(seconds=3600)",
        },
    ]
