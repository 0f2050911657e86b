"""TrainJobOperator that does not wait, that does not adopt, and that only shows what it would submit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deferred_tasks import context, deferred, in_state, jobs, operator, the_job
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of
from trainwright.api.phase import is_superseded
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.diagnosis.errors import Cancelled
from trainwright.runtimes import RuntimeNotFound
from trainwright.submission.connect import NoTrainingApi

cancellation = OnFirstUse("trainwright.operators.cancellation")
sdk = OnFirstUse("airflow.sdk")
hook = OnFirstUse("trainwright.operators.hook")
dry_run = OnFirstUse("trainwright.operators.waiting.dry_run")
airflow_api = OnFirstUse("trainwright.operators.values.airflow_api")
allowed_places = OnFirstUse("trainwright.operators.values.allowed_places")

SetStatus = Callable[..., Any]


@pytest.mark.medium
def test_a_task_that_is_ended_while_it_submits_leaves_no_job_running(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    in_state(monkeypatch, "failed")
    create = connected.create

    def kill_after(obj: dict[str, Any], **options: Any) -> dict[str, Any]:
        made = create(obj, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return made

    monkeypatch.setattr(connected, "create", kill_after)
    with pytest.raises(Cancelled):
        operator(wait_for_completion=False).execute(context())
    assert the_job(connected)["spec"]["suspend"] is True


@pytest.mark.parametrize("status", ["", "Complete"])
def test_a_retry_that_is_not_durable_submits_a_new_job(connected: EmbeddedCluster, set_status: SetStatus, status: str) -> None:
    deferred(operator(durable=False))
    first = the_job(connected)
    if status:
        set_status(first, status)
    with pytest.raises(airflow_api.TaskDeferred) as raised:
        operator(durable=False).execute(context(try_number=2))
    second = raised.value.trigger.name
    assert second == f"{name_of(first)}-2"
    before = connected.get(TRAINJOB, name_of(first), "default")
    assert is_superseded(before)
    assert bool(before["spec"].get("suspend")) is (status == "")
    assert not connected.get(TRAINJOB, second, "default")["spec"].get("suspend")


def test_a_failed_job_of_the_previous_try_is_left_as_it_is(connected: EmbeddedCluster, set_status: SetStatus) -> None:
    deferred(operator(durable=False))
    failed = set_status(the_job(connected), "Failed")
    with pytest.raises(airflow_api.TaskDeferred):
        operator(durable=False).execute(context(try_number=2))
    assert connected.get(TRAINJOB, name_of(failed), "default") == failed
    assert len(jobs(connected)) == 2


@pytest.mark.medium
def test_a_worker_that_is_lost_stops_a_job_that_its_retry_would_not_adopt(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred(operator(durable=False))
    in_state(monkeypatch, "running")
    cancellation.on_signal(context(try_number=1), "suspend", durable=False)(connected, the_job(connected))
    assert the_job(connected)["spec"]["suspend"] is True


def task(**options: Any) -> operators.TrainJobOperator:
    with sdk.DAG("d", schedule=None):
        return operators.TrainJobOperator(task_id="train", **{"runtime": "torch-distributed", "command": ["true"], **options})


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def test_a_dry_run_prints_what_would_be_created_and_creates_nothing(
    connected: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    task(num_nodes=2, workspace="pvc://w?size=1Gi", run_id="r").dry_run()
    text = capsys.readouterr().out
    trainjob, jobset = documents(text)
    assert (trainjob["kind"], trainjob["spec"]["trainer"]["numNodes"]) == ("TrainJob", 2)
    assert (jobset["kind"], jobset["metadata"]["name"]) == ("JobSet", trainjob["metadata"]["name"])
    assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 2
    assert "# run r, mode trainjob, runtime ClusterTrainingRuntime torch-distributed (cluster)\n" in text
    assert "# also created: PersistentVolumeClaim w" in text
    assert jobs(connected) == []


def test_a_dry_run_shows_no_data_of_secrets(connected: EmbeddedCluster) -> None:
    found = documents(dry_run.preview_task(task(runtime="deepspeed-distributed")))
    secrets = [each for each in found if each["kind"] == "Secret"]
    assert secrets
    assert not any({"data", "stringData"} & set(each) for each in secrets)


@pytest.mark.parametrize("error", [ServiceUnavailable("cannot reach it"), None])
def test_without_a_cluster_a_dry_run_takes_the_bundled_runtime(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    from trainwright.cluster import NoCluster

    def refuse(_hook: Any, _settings: Any) -> Any:
        raise error or NoCluster("no kubeconfig")

    monkeypatch.setattr(hook.TrainwrightHook, "connect", refuse)
    text = dry_run.preview_task(task())
    assert [each["kind"] for each in documents(text)] == ["TrainJob", "JobSet"]
    assert "(bundled)" in text
    assert f"# no cluster: {error or 'no kubeconfig'}" in text
    with pytest.raises(RuntimeNotFound, match=r"'ours'.*no cluster was asked for others: "):
        dry_run.preview_task(task(runtime="ours"))


@pytest.mark.parametrize("error", [Forbidden("not you"), NoTrainingApi("it serves nothing")])
def test_a_cluster_that_refuses_is_not_passed_over(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_hook: Any, _settings: Any) -> Any:
        raise error

    monkeypatch.setattr(hook.TrainwrightHook, "connect", refuse)
    with pytest.raises(type(error), match=str(error)):
        dry_run.preview_task(task())


def test_a_dry_run_names_the_templates_that_it_cannot_read(connected: EmbeddedCluster) -> None:
    unrendered = task(num_nodes="{{ params.nodes }}", placement={"queue_name": "{{ params.queue }}"})
    with pytest.raises(ValueError, match=r"not rendered yet: .*num_nodes.*placement"):
        dry_run.preview_task(unrendered)
    unrendered.render_template_fields({"params": {"nodes": 3, "queue": "gpus"}})
    assert documents(dry_run.preview_task(unrendered))[0]["spec"]["trainer"]["numNodes"] == 3


def test_a_dry_run_reads_only_places_that_are_allowed(
    connected: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import Variable

    monkeypatch.setattr(Variable, "get", lambda *_args, **_more: "s3://models")
    with pytest.raises(allowed_places.PlaceNotAllowed, match="code"):
        task(code=str(tmp_path), command=["train.py"]).dry_run()
