"""Whoever triggers a DAG names only places that the list allows: by prefix of segments, after links and `..` are resolved."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import trainjob
from support.on_first_use import OnFirstUse

from trainwright import operators

allowed_places = OnFirstUse("trainwright.operators.values.allowed_places")

pytestmark = pytest.mark.medium
ALLOWED = "s3://bucket/team, hf://org, pvc://claim, git+https://example.com/org, file://{}"
MANIFEST = trainjob(
    runtime="trl-sft",
    initializer={"dataset": {"storageUri": "s3://bucket/team/x"}, "model": {"storageUri": "hf://other/model"}},
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
