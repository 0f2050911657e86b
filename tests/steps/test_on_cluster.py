"""Steps in pods: what their jobs are given."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.jobs import Identity, Submission, Waiting
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.jobs.request.groups import Secrets
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.submit.submission import StepCredentials
from trainwright.steps.on_cluster import ClusterSteps
from trainwright.steps.requests import ExportCheckpoint, FilesJob, InitializeDataset, StepRun


def env_of_a_step(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """The variables that the job of a step is submitted with."""
    submitted: list[TrainRequest] = []

    def run_to_end(submission: Submission, _waiting: Waiting) -> Any:
        submitted.append(submission.request)
        raise Cancelled("it need not run")

    monkeypatch.setattr("trainwright.steps.on_cluster.run_to_end", run_to_end)
    workspace = options.pop("workspace", Workspace.parse("pvc://claim"))
    steps = ClusterSteps(None, workspace, Identity("airflow", "run", "data"), "team", **options)  # type: ignore[arg-type]  # none is reached
    with pytest.raises(Cancelled):
        steps(InitializeDataset.parse({"dataset_uri": "s3://bucket/data"}), StepRun("airflow", "run", -1))
    return dict(submitted[0].env)


def secret_of(variable: Any) -> tuple[str, str, bool]:
    reference = variable["valueFrom"]["secretKeyRef"]
    return reference["name"], reference["key"], bool(reference.get("optional"))


def test_a_step_reads_the_secrets_of_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    job = FilesJob.parse({"secrets": {"store_secret": "store", "hub_secret": "hub"}, "env": {"AWS_REGION": "eu-1"}})
    env = env_of_a_step(monkeypatch, job=job)
    assert secret_of(env["AWS_SECRET_ACCESS_KEY"]) == ("store", "AWS_SECRET_ACCESS_KEY", True)
    assert secret_of(env["AWS_ALLOW_HTTP"]) == ("store", "AWS_ALLOW_HTTP", True)
    assert secret_of(env["HF_TOKEN"]) == ("hub", "HF_TOKEN", True)
    assert env["AWS_REGION"] == "eu-1", "what is set by name holds"


def test_a_connection_comes_before_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = StepCredentials({"AWS_SECRET_ACCESS_KEY": "hidden"})
    env = env_of_a_step(monkeypatch, job=FilesJob(secrets=Secrets(store_secret="store")), credentials=credentials)
    assert secret_of(env["AWS_SECRET_ACCESS_KEY"])[0].endswith("-credentials")
    assert secret_of(env["AWS_ACCESS_KEY_ID"])[0] == "store"


def test_a_source_on_the_claim_of_the_workspace_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env_of_a_step(monkeypatch)["TRAINWRIGHT_CLAIMS"] == "claim=/trainwright-workspace"
    own = FilesJob(env={"TRAINWRIGHT_CLAIMS": "claim=/elsewhere"})
    assert env_of_a_step(monkeypatch, job=own)["TRAINWRIGHT_CLAIMS"] == "claim=/elsewhere"
    folder = Workspace.parse("pvc://claim/folder")
    assert "TRAINWRIGHT_CLAIMS" not in env_of_a_step(monkeypatch, workspace=folder), "the rest of the claim is not mounted"


@pytest.mark.parametrize(
    "target",
    [
        "file:///exports",
        "file:///trainwright-workspaces/exports",
        "file:///trainwright-workspace2",
        "FILE:///exports",
        " file:///exports",
    ],
)
def test_an_export_into_the_pod_is_refused(target: str) -> None:
    steps = ClusterSteps(None, Workspace.parse("pvc://claim"), Identity("airflow", "run", "export"), "team")  # type: ignore[arg-type]  # none is reached
    with pytest.raises(ValueError, match="is a folder in the pod of the step, and would be lost with it"):
        steps(ExportCheckpoint.parse({"export_uri": target}), StepRun("airflow", "run", -1))
