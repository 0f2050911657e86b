"""Operators whose worker does not mount the workspace: the same steps in pods, with credentials that stay for as long as these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import task_context
from servers.s3_server import S3Server
from support.fast_training_cluster import Runs, running
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages
from support.scripted_evaluation import loss_after

from trainwright import operators
from trainwright.api.kinds import SECRET, TRAINJOB
from trainwright.api.objects import labels_of, name_of, owners_of
from trainwright.jobs.state.run_folder import label_value, run_folder
from trainwright.jobs.submit import submit_or_adopt as submission

errors = OnFirstUse("trainwright.operators.errors")
hook = OnFirstUse("trainwright.operators.hook")
require_packages("airflow")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with running(tmp_path_factory.mktemp("plane")) as found:
        yield found


@pytest.fixture(autouse=True)
def connected(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.cluster, "default_namespace", "default", raising=False)
    monkeypatch.setattr(hook.TrainwrightHook, "connect", lambda _hook, _settings: runs.cluster)


def job_names(runs: Runs, run: str) -> list[str]:
    labels = (labels_of(job) for job in runs.cluster.list(TRAINJOB, "default").items)
    return sorted(found["trainwright.dev/step"] for found in labels if found["trainwright.dev/run"] == label_value(f"d/{run}"))


def test_a_chain_of_tasks_without_the_volume(runs: Runs) -> None:
    claim, inputs = runs.claim("remote"), runs.inputs("remote")
    common: dict[str, Any] = {"workspace": "pvc://remote"}
    prepare = operators.InitializeDatasetOperator(task_id="data", dataset_uri=inputs.dataset, test_fraction=0.25, **common)
    dataset = prepare.execute(task_context("data", run_id="one"))
    assert (dataset["source"], dataset["train_rows"] + dataset["test_rows"]) == (inputs.dataset, 20)
    assert (claim / "datasets" / dataset["digest"].removeprefix("sha256:") / "train.jsonl").is_file()
    prepare_model = operators.InitializeModelOperator(task_id="model", model_uri=inputs.model, **common)
    model = prepare_model.execute(task_context("model", run_id="one"))
    runs.train("remote", "d/one", inputs, dataset_digest=dataset["digest"], model_digest=model["digest"])
    where = "file:///trainwright-workspace/exports"  # of the claim; any other folder would be lost with the pod
    export = operators.ExportCheckpointOperator(task_id="export", export_uri=where, **common)
    exported = export.execute(task_context("export", run_id="one"))
    assert exported["step"] == 5
    assert exported["uri"].startswith(where)
    evaluate = operators.EvaluateOperator(
        task_id="evaluate",
        checkpoint_uri=exported["uri"],
        checkpoint_digest=exported["digest"],
        runtime="fast-evaluation",
        retention="keep=1",
        **common,
    )
    evaluated = evaluate.execute(task_context("evaluate", run_id="one"))
    assert (evaluated["after"]["loss"], evaluated["loss_curve"]) == (pytest.approx(loss_after(dataset["train_rows"])), "")
    assert evaluated["evaluation"]["dataset_digest"] == dataset["digest"]
    assert len(list((claim / run_folder("d/one") / "evaluation").glob("*/loss-curve.html"))) == 1
    assert json.loads((claim / run_folder("d/one") / "run.json").read_text())["ended"]
    jobs = job_names(runs, "one")
    assert len(jobs) == 8
    assert prepare.execute(task_context("data", run_id="one")) == dataset, "a retry takes the result of the job that is there"
    assert job_names(runs, "one") == jobs


CHANGES = """
file=/workspace/dataset/train.jsonl
grep -q linked "$file" || exit 9
for change in "chmod u+w $file" "echo changed >> $file" "rm $file" "mv /workspace/dataset /workspace/own" \
    "ln $file /workspace/own && echo changed >> /workspace/own"; do
  sh -c "$change" 2>/dev/null && exit 3
done
cp "$file" /workspace/output/own && chmod u+w /workspace/output/own && echo changed >> /workspace/output/own
"""


def test_a_training_cannot_change_what_its_initializer_has_linked_from_the_shared_data(runs: Runs) -> None:
    claim = runs.claim("linked")
    runs.train("linked", "linked", runs.inputs("linked"), command=["bash", "-c", CHANGES])
    (shared,) = (claim / "datasets").glob("*/train.jsonl")
    (own,) = claim.glob("runs/*/dataset/train.jsonl")
    assert shared.samefile(own), "linked, not copied"
    assert "changed" not in shared.read_text("utf-8")


def test_invalid_input_fails_at_once_with_the_message_of_the_pod(runs: Runs, tmp_path: Path) -> None:
    runs.claim("wrong")
    task = operators.InitializeDatasetOperator(task_id="t", dataset_uri=f"file://{tmp_path}/nothing", workspace="pvc://wrong")
    with pytest.raises(errors.NonRetryableError, match=r"nothing.*TrainJob") as failed:
        task.execute(task_context("t", run_id="wrong"))
    assert "RemoteStepInvalid" in str(failed.value)


def test_a_result_whose_log_is_gone_is_made_again(runs: Runs) -> None:
    from trainwright.api.kinds import POD

    runs.claim("again")
    inputs = runs.inputs("again")
    task = operators.InitializeModelOperator(task_id="model", model_uri=inputs.model, workspace="pvc://again")
    first = task.execute(task_context("model", run_id="again"))
    (job,) = (
        one
        for one in runs.cluster.list(TRAINJOB, "default").items
        if labels_of(one)["trainwright.dev/run"] == label_value("d/again")
    )
    for pod in runs.cluster.list(POD, "default").items:
        if labels_of(pod).get("jobset.sigs.k8s.io/jobset-name") == name_of(job):
            runs.cluster.delete(POD, name_of(pod), "default")
    assert task.execute(task_context("model", run_id="again")) == first


def test_credentials_of_a_connection_are_a_secret_of_the_job_and_go_with_its_end(
    runs: Runs, s3_server: S3Server, s3_folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow.sdk import BaseHook

    extra = {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"}
    login, password = s3_server.access_key_id, s3_server.secret_access_key
    connection = SimpleNamespace(conn_type="aws", login=login, password=password, extra_dejson=extra)
    monkeypatch.setattr(BaseHook, "get_connection", classmethod(lambda _cls, _conn_id: connection))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    bucket, _, prefix = s3_folder.removeprefix("s3://").partition("/")
    rows = b'{"text": "a"}\n{"text": "b"}\n'
    s3_server.client().put_object(Bucket=bucket, Key=f"{prefix}/rows.jsonl", Body=rows)
    runs.claim("secret")
    seen: list[Any] = []
    owned = submission.set_credentials_owner

    def watched(cluster: Any, identity: Any, trainjob: Any, credentials: Any) -> None:
        owned(cluster, identity, trainjob, credentials)
        seen.append((trainjob, *runs.cluster.list(SECRET, "default").items))

    monkeypatch.setattr(submission, "set_credentials_owner", watched)
    task = operators.InitializeDatasetOperator(
        task_id="t", dataset_uri=f"{s3_folder}/rows.jsonl", workspace="pvc://secret", store_conn_id="s3", test_fraction=0
    )
    assert task.execute(task_context("t", run_id="secret"))["train_rows"] == 2
    ((job, secret),) = seen
    assert [owner["uid"] for owner in owners_of(secret)] == [job["metadata"]["uid"]]
    assert runs.cluster.list(SECRET, "default").items == []
    assert password not in json.dumps(job)
    assert password not in caplog.text
