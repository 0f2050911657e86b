"""Whoever triggers a DAG names only places that the list allows: by prefix of segments, after links and `..` are resolved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import trainjob
from support.on_first_use import OnFirstUse

from trainwright import operators

errors = OnFirstUse("trainwright.operators.errors")
allowed_places = OnFirstUse("trainwright.operators.values.allowed_places")

pytestmark = pytest.mark.medium
ALLOWED = "s3://bucket/team, hf://org, pvc://claim, git+https://example.com/org, file://{}"
MANIFEST = trainjob(
    runtime="trl-sft", initializer={"dataset": {"storageUri": "s3://bucket/team/x"}, "model": {"storageUri": "hf://other/model"}}
)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local folder that is allowed."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    monkeypatch.setenv("AIRFLOW_VAR_TRAINWRIGHT_ALLOWED_PLACES", ALLOWED.format(folder))
    return folder


@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        ("dataset_uri", "s3://bucket/team"),
        ("dataset_uri", "s3://bucket/team/sub/rows.jsonl"),
        ("dataset_uri", "S3://bucket/team"),
        ("model_uri", "hf://org/name@abc"),
        ("model_uri", "org/name"),
        ("workspace", "claim"),
        ("workspace", "pvc://claim/folder"),
        ("workspace", "pvc://claim?size=20Gi"),
        ("code", "git+https://example.com/org/repo@main#subdirectory=x"),
        ("export_uri", "file://{data}/exports"),
        ("workspace_path", "{data}"),
        ("code", "{data}/code"),
        ("resume", "auto"),
        ("resume", "never"),
        ("resume", "last"),
        ("volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}, {"name": "w", "emptyDir": {}}]),
        ("volumes", "- name: v\n  secret: s"),
        ("resume", "s3://bucket/team/checkpoint-5"),
        ("resume", "weights:s3://bucket/team/checkpoint-5"),
        ("model_uri", ""),
        ("dataset_uri", "hf://datasets/org/x@main/folder"),
        ("env", {"DATA": "s3://bucket/team/rows", "TRACKING": "https://tracker.example.com"}),
        ("settings", {"learning_rate": 1e-4}),
    ],
)
def test_place_below_a_prefix_is_allowed(data: Path, parameter: str, place: Any) -> None:
    allowed_places.check_places((), **{parameter: place.format(data=data) if isinstance(place, str) else place})


@pytest.mark.parametrize(
    ("parameter", "place"),
    [
        ("dataset_uri", "s3://bucket/teamwork"),
        ("dataset_uri", "s3://bucket"),
        ("dataset_uri", "s3://bucket/team/../secret"),
        ("dataset_uri", "s3://bucket/team/%2e%2e/secret"),
        ("dataset_uri", "file:///etc/passwd"),
        ("dataset_uri", "file://{data}/../x"),
        ("dataset_uri", "file://{data}/out/x"),
        ("dataset_uri", "file://localhost/etc/passwd"),
        ("model_uri", "hf://organisation/name"),
        ("model_uri", "other/name"),
        ("workspace", "claims"),
        ("workspace", "pvc://other/claim"),
        ("workspace_path", "/"),
        ("workspace_path", "{data}/.."),
        ("export_uri", "gs://bucket/team"),
        ("code", "git+https://example.com/organisation/repo@main"),
        ("code", "git+https://user:pw@example.com/org/repo@main"),
        ("code", "/etc"),
        ("resume", "s3://other/checkpoint-5"),
        ("resume", "weights:s3://other/checkpoint-5"),
        ("manifest", MANIFEST),
        ("manifest", "/etc/job.yaml"),
        ("volumes", [{"name": "v", "hostPath": {"path": "/etc"}}]),
        ("volumes", [{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}]),
        ("runtime_patches", [{"manager": "m", "trainingRuntimeSpec": {"a": [{"hostPath": {"path": "/"}}]}}]),
        ("env", {"DATA": "s3://other/rows"}),
        ("env", {"DATA": " S3://other/rows"}),
        ("env", {"DATA": "s3://bucket/team/a,s3://other/b"}),
        ("settings", {"args": ["--data=gs://bucket/x"]}),
        ("settings", {"dataset": {"data_files": "gs://bucket/x"}}),
        ("metadata_loc", "s3://other/metadata.json"),
        ("volumes", [{"name": "v", "nfs": {"server": "nfs", "path": "/"}}]),
        ("volumes", "- name: v\n  csi: d"),
        ("volumes", [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"name": "other"}}}}}]),
        ("job.placement.volumes", [{"name": "v", "azureFile": {"secretName": "s", "shareName": "x"}}]),
        ("runtime_patches", [{"trainingRuntimeSpec": {"spec": {"volumes": [{"name": "v", "nfs": {"server": "x"}}]}}}]),
    ],
)
def test_everything_else_is_refused_with_the_parameter_and_the_list(data: Path, parameter: str, place: Any) -> None:
    given = place.format(data=data) if isinstance(place, str) else place
    words = rf"^{parameter}( file)?: .* is not allowed by the Variable trainwright_allowed_places; allowed: s3"
    with pytest.raises(allowed_places.PlaceNotAllowed, match=words) as refused:
        allowed_places.check_places((), **{parameter: given})
    assert "user:pw" not in str(refused.value)


def test_the_claims_of_a_manifest_are_checked() -> None:
    pod = {"volumes": [{"persistentVolumeClaim": {"claimName": "other"}}]}
    with pytest.raises(allowed_places.PlaceNotAllowed, match="pvc://other is not allowed"):
        allowed_places.check_places((), manifest={"spec": {"runtimePatches": [{"trainingRuntimeSpec": pod}]}})


def test_the_list_of_a_connection_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import BaseHook

    extras: dict[str, Any] = {"narrow": {"allowed_places": ["s3://bucket/team/own"]}, "open": {}, "none": {"allowed_places": []}}
    monkeypatch.setattr(
        BaseHook, "get_connection", classmethod(lambda _cls, conn_id: SimpleNamespace(extra_dejson=extras[conn_id]))
    )
    allowed_places.check_places(("open", None, ""), dataset_uri="s3://bucket/team/other")
    allowed_places.check_places(("narrow",), dataset_uri="s3://bucket/team/own/x")
    with pytest.raises(allowed_places.PlaceNotAllowed, match="by the connection 'narrow'; allowed: s3://bucket/team/own"):
        allowed_places.check_places(("narrow",), dataset_uri="s3://bucket/team/other")
    with pytest.raises(allowed_places.PlaceNotAllowed, match="allowed: nothing"):
        allowed_places.check_places(("none",), dataset_uri="s3://bucket/team/other")


@pytest.mark.parametrize("given", ["[", "[1]", '["/data"]', "bucket", '{"a": 1}'])
def test_a_list_that_cannot_be_read_allows_nothing(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_TRAINWRIGHT_ALLOWED_PLACES", given)
    with pytest.raises(allowed_places.PlaceNotAllowed, match="so no place is allowed; correct it"):
        allowed_places.check_places((), dataset_uri="s3://bucket/team")


def test_without_a_list_everything_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_VAR_TRAINWRIGHT_ALLOWED_PLACES")
    allowed_places.check_places((), dataset_uri="file:///etc", manifest=MANIFEST)


@pytest.mark.parametrize(
    "operator",
    [
        ("StartRunOperator", {"workspace": "other"}),
        ("StartRunOperator", {"workspace": "claim", "workspace_path": "/etc"}),
        ("InitializeDatasetOperator", {"dataset_uri": "s3://other/x"}),
        ("InitializeModelOperator", {"model_uri": "hf://other/x"}),
        ("TrainJobOperator", {"dataset_uri": "s3://other/x", "workspace": "pvc://claim"}),
        ("TrainJobOperator", {"manifest": MANIFEST}),
        ("ExportCheckpointOperator", {"export_uri": "s3://other/x"}),
        ("EvaluateOperator", {"checkpoint_uri": "s3://other/x", "checkpoint_digest": "sha256:0", "workspace": "pvc://claim"}),
    ],
    ids=lambda operator: operator[0],
)
def test_every_operator_checks_before_it_does_anything(operator: tuple[str, dict[str, Any]]) -> None:
    name, arguments = operator
    with pytest.raises(allowed_places.PlaceNotAllowed):
        getattr(operators, name)(task_id="t", **arguments).execute({})


VOLUME = {"placement": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "other"}}]}}
EVALUATION = {"checkpoint_uri": "s3://bucket/team/x", "checkpoint_digest": f"sha256:{'0' * 64}"}
RUN = {"run_id": "r", "workspace": "pvc://claim", "runs_on": "cluster"}


@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("EvaluateOperator", {**EVALUATION, **VOLUME, "run": RUN}, "placement.volumes: pvc://other"),
        ("EvaluateOperator", {**EVALUATION, "run": {**RUN, "evaluation": VOLUME}}, "placement.volumes: pvc://other"),
        ("EvaluateOperator", {**EVALUATION, "run": {**RUN, "job": VOLUME}}, "job.placement.volumes: pvc://other"),
        (
            "EvaluateOperator",
            {**EVALUATION, "run": {**RUN, "evaluation": {"env": {"DATA": "s3://other/x"}}}},
            "env: s3://other/x",
        ),
        (
            "InitializeDatasetOperator",
            {"dataset_uri": "hf://org/x", "run": RUN, "job": VOLUME},
            "job.placement.volumes: pvc://other",
        ),
        (
            "InitializeDatasetOperator",
            {"dataset_uri": "hf://org/x", "run": {**RUN, "data": {"model_uri": "hf://other/x"}}},
            "model_uri: hf://other/x",
        ),
        ("RetireRunOperator", {"run": {**RUN, "job": VOLUME}}, "job.placement.volumes: pvc://other"),
        ("TrainJobOperator", {"run": {**RUN, "training": VOLUME}}, "placement.volumes: pvc://other"),
        ("RegisterModelOperator", {**EVALUATION, "registry": "hf://other/x"}, "registry: hf://other/x"),
        ("StartRunOperator", {"workspace": "pvc://claim", "training": VOLUME}, "placement.volumes: pvc://other"),
        ("StartRunOperator", {"workspace": "pvc://claim", "training": {"job": VOLUME}}, "job.placement.volumes: pvc://other"),
        ("StartRunOperator", {"workspace": "pvc://claim", "training": {"manifest": "/etc/job.yaml"}}, "manifest: file:///etc"),
        ("StartRunOperator", {"workspace": "pvc://claim", "evaluation": VOLUME}, "evaluation.placement.volumes: pvc://other"),
        ("StartRunOperator", {"workspace": "pvc://claim", "defaults": VOLUME}, "evaluation.placement.volumes: pvc://other"),
    ],
)
def test_places_of_runs_and_jobs_are_checked_with_the_settings_of_the_task(
    name: str, arguments: dict[str, Any], path: str
) -> None:
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1, try_number=1, xcom_push=lambda **_: None)
    with pytest.raises(allowed_places.PlaceNotAllowed, match=f"^{path}"):
        getattr(operators, name)(task_id="t", **arguments).execute({"ti": ti, "dag_run": None})


def test_placement_without_places_is_allowed() -> None:
    task = operators.EvaluateOperator(task_id="t", placement={"queue_name": "gpus"}, **EVALUATION)
    with pytest.raises(errors.NonRetryableError, match="workspace: required"):
        task.execute({})


def test_run_with_the_path_of_a_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}", "utf-8")
    run = {"run_id": "r", "training": {"manifest": f"{tmp_path}/job.json"}}
    with pytest.raises(errors.NonRetryableError, match=r"run\.training\.manifest: expected an object or YAML text"):
        operators.InitializeDatasetOperator(task_id="t", dataset_uri="hf://org/x", run=run).execute({})
