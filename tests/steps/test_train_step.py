"""The training step of a component: whose job it is, where it goes, and what of its parameters it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import program_request, train_request, trainjob
from support.cluster_without_controllers import set_status  # noqa: F401  fixture

from trainwright import submission
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.initializers import DatasetOptions, InitializerError, prepare_dataset
from trainwright.jobs import TrainRequest
from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.diagnosis.errors import TrainJobFailed
from trainwright.jobs.request.groups import STEP_LEASE_SECONDS
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.task_config import Task
from trainwright.jobs.state.attempts import attempt_of
from trainwright.jobs.state.identity import Identity
from trainwright.steps.requests import Run
from trainwright.steps.training.own_step import ServerRetries
from trainwright.steps.training.submit import train_step_of
from trainwright.steps.training.trials import Trial
from trainwright.submission.jobs_client import JobsClient

RUN = Run(run_id="r")


@pytest.fixture
def asked(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """With what the step has connected."""
    asked: list[dict[str, Any]] = []

    def connect(**options: Any) -> JobsClient:
        asked.append(options)
        return JobsClient.of(cluster)

    monkeypatch.setattr(submission, "connect_for_jobs", connect)
    return asked


def test_a_step_is_the_step_train_of_its_run_in_the_namespace_of_the_credentials(asked: list[dict[str, Any]]) -> None:
    step = train_step_of(program_request(), RUN.having(submission_mode="trainjob"))
    assert (step.submission.identity, step.submission.namespace) == (Identity("kfp", "r", "train"), "default")
    assert (step.submission.latest_checkpoint, step.submission.workflow) == (None, None)
    assert asked == [{"mode": "trainjob"}]


MANIFEST = trainjob("a", namespace="of-the-manifest")


@pytest.mark.parametrize(("namespace", "expected"), [("", "of-the-manifest"), ("team", "team")])
@pytest.mark.usefixtures("asked")
def test_the_namespace_is_that_of_the_parameter_else_of_the_manifest(namespace: str, expected: str) -> None:
    step = train_step_of(train_request(manifest=MANIFEST), RUN.having(namespace=namespace))
    assert step.submission.namespace == expected


@pytest.mark.usefixtures("asked")
def test_a_trial_has_an_identity_and_settings_of_its_own() -> None:
    sources = {"dataset_uri": "hf://a/b", "model_uri": "hf://a/c", "workspace": "pvc://w"}
    given = train_request(**sources, settings={"learning_rate": 0.1, "max_steps": 3})
    step = train_step_of(given, RUN, trial=Trial(index=4, settings={"learning_rate": 0.2}))
    assert step.submission.identity == Identity("kfp", "r", "train", 4)
    assert step.submission.request.settings == {"learning_rate": 0.2, "max_steps": 3}
    assert given.settings["learning_rate"] == 0.1


@pytest.mark.usefixtures("asked")
def test_exports_are_looked_for_where_the_run_exports(tmp_path: Any) -> None:
    step = train_step_of(program_request(export_uri=f"file://{tmp_path}"), RUN)
    assert step.submission.latest_checkpoint is not None
    assert step.submission.latest_checkpoint(step.submission.identity) == ""


def test_bad_request_is_refused_before_the_step_connects(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidSettings, match=r"limits\.restarts: given twice, with different values"):
        train_step_of(program_request(restarts=1), RUN.having(training=train_request(restarts=2)))
    with pytest.raises(InvalidSettings, match="resume: "):
        train_step_of(TrainRequest(resume="somewhere"), RUN)
    assert not asked


@pytest.mark.usefixtures("asked")
def test_settings_of_the_run_are_added() -> None:
    run = RUN.having(training=train_request(run_timeout_seconds=60, waiter_lease_seconds=1800), workspace="pvc://w")
    request = train_step_of(train_request(restarts=1), run).submission.request
    assert (request.limits.run_timeout_seconds, request.limits.restarts) == (60, 1)
    assert (str(request.workspace), request.ending.waiter_lease_seconds) == ("pvc://w", 1800)
    assert train_step_of(program_request(), RUN).submission.request.ending.waiter_lease_seconds == STEP_LEASE_SECONDS


def test_settings_of_a_task_are_checked_as_those_of_the_component(asked: list[dict[str, Any]]) -> None:
    nothing = dict.fromkeys(("resources", "volumes", "volume_mounts", "node_selector", "tolerations", "affinity"))
    config = SimpleNamespace(**nothing, env=[{"name": "DB_PASSWORD", "value": "plain"}])
    with pytest.raises(LiteralSecret, match=r"env\.DB_PASSWORD"):
        train_step_of(program_request(), RUN, task=Task(config))
    with pytest.raises(LiteralSecret, match=r"placement\.annotations"):
        train_step_of(program_request(), RUN, task=Task(settings={"annotations": {"a": "hf_" + "aB3" * 10}}))
    with pytest.raises(InvalidSettings, match=r"placement\.volumes\[0\]\.name: Required"):
        train_step_of(program_request(), RUN, task=Task(settings={"volumes": [{"emptyDir": {}}]}))
    assert not asked


def test_prepared_rows_for_another_trainer_are_refused_before_submission(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p", "chosen": "a", "rejected": "b"}\n', "utf-8")
    digest = prepare_dataset(f"file://{tmp_path}/rows.jsonl", tmp_path / "w", DatasetOptions(test_fraction=0)).digest
    given: dict[str, Any] = {"dataset_digest": digest, "workspace": "pvc://w"}
    mounted = RUN.having(workspace_path=str(tmp_path / "w"))
    for builtin, runtime in (("", ""), ("sft", "trl-dpo")):
        with pytest.raises(InitializerError, match=r"\(layout preference\), but the trainer sft learns from .* use builtin=dpo"):
            train_step_of(train_request(**given, builtin=builtin, runtime=runtime), mounted)
    assert asked == []
    for accepted in ({"builtin": "kto"}, {"runtime": "trl-dpo"}, {"runtime": "trl-sft", "command": ["mine"]}):
        train_step_of(train_request(**given, **accepted), mounted)
    train_step_of(train_request(**given), RUN)  # the initializer of the job checks what this step does not see


@pytest.mark.usefixtures("asked")
def test_submitting_and_running_are_of_one_job(cluster: EmbeddedCluster, set_status: Any) -> None:  # noqa: F811
    step = train_step_of(program_request(), RUN.having(submission_mode="trainjob"))
    handle = step.submit()
    (job,) = cluster.list(TRAINJOB).items
    assert handle.uid == uid_of(job)
    set_status(job, "Complete")
    assert train_step_of(program_request(), RUN.having(submission_mode="trainjob")).run().trainjob == handle.name
    assert len(cluster.list(TRAINJOB).items) == 1


@pytest.mark.usefixtures("asked")
def test_metrics_are_kept_in_the_folder_of_the_run(
    cluster: EmbeddedCluster,
    set_status: Any,  # noqa: F811  fixture
    tmp_path: Path,
) -> None:
    step = train_step_of(program_request(workspace="pvc://claim?size=1Gi"), RUN.having(workspace_path=str(tmp_path)))
    (tmp_path / step.submission.identity.folder).mkdir(parents=True)
    metrics = [{"name": "loss", "value": "0.5"}, {"name": "step", "value": "7"}]
    job = cluster.get(TRAINJOB, step.submit().name, "default")
    set_status(job, "Complete", trainerStatus={"lastUpdatedTime": "2026-01-01T00:00:00Z", "metrics": metrics})
    folder = step.run().folder
    assert (tmp_path / folder / "metrics.jsonl").read_text("utf-8") == '{"step": 7, "loss": 0.5}\n'


@pytest.mark.usefixtures("asked")
def test_a_failure_says_what_the_server_does_about_it(
    cluster: EmbeddedCluster,
    set_status: Any,  # noqa: F811  fixture
) -> None:
    step = replace(train_step_of(program_request(), RUN), server_retries=ServerRetries.lost_pods)
    set_status(cluster.get(TRAINJOB, step.submit().name, "default"), "Failed")

    def fail(_events: object) -> None:
        set_status(max(cluster.list(TRAINJOB).items, key=attempt_of), "Failed")

    with pytest.raises(TrainJobFailed) as raised:
        step.run((fail,))
    assert raised.value.__notes__ == [ServerRetries.lost_pods.value]
