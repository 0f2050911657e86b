"""What is reported to OpenLineage. Airflow's provider for it is used if it is installed, else classes of the same shape."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, deferred, event_of, operator, the_job

from trainwright import operators
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.state.run_folder import run_folder
from trainwright.operators.reporting.lineage import dataset_name

PROVIDER = "apache-airflow-providers-openlineage"
INSTALLED = any(True for _ in metadata.distributions(name=PROVIDER))


class Given(SimpleNamespace):
    """Stands for a class of the client: keeps what it was made of."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(**dict(zip(("namespace", "name"), args, strict=False)), **kwargs)

    def with_additional_properties(self, **more: Any) -> Given:
        return Given(**vars(self), **more)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    if INSTALLED:
        return
    names = {
        "airflow.providers.openlineage": {},
        "airflow.providers.openlineage.extractors": {"OperatorLineage": Given},
        "openlineage": {},
        "openlineage.client": {},
        "openlineage.client.event_v2": {"InputDataset": Given, "OutputDataset": Given},
        "openlineage.client.facet_v2": {
            "JobFacet": Given,
            "dataset_version_dataset": SimpleNamespace(DatasetVersionDatasetFacet=Given),
            "output_statistics_output_dataset": SimpleNamespace(OutputStatisticsOutputDatasetFacet=Given),
            "source_code_location_job": SimpleNamespace(SourceCodeLocationJobFacet=Given),
        },
    }
    for name, members in names.items():
        module: Any = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("provider")
def test_a_training_reads_dataset_model_and_the_export_that_it_resumes_from() -> None:
    task = operators.TrainJobOperator(
        task_id="train",
        workspace="pvc://w/team?size=1Gi",
        dataset_uri="hf://datasets/org/rows@main",
        dataset_digest="sha256:d",
        model_uri="s3://bucket/models/base/",
        resume="weights:gs://bucket/e",
        code="git+https://git.example.com/team/repo@abc#subdirectory=x",
        num_nodes=2,
    )
    started = task.get_openlineage_facets_on_start()
    assert [(entry.namespace, entry.name) for entry in started.inputs] == [
        ("https://huggingface.co", "datasets/org/rows"),
        ("s3://bucket", "models/base"),
        ("gs://bucket", "e"),
    ]
    assert started.inputs[0].facets["version"].datasetVersion == "sha256:d"
    assert started.outputs == []
    location = started.job_facets["sourceCodeLocation"]
    assert (location.type, location.url, location.version) == ("git", "https://git.example.com/team/repo", "abc")
    assert started.job_facets["trainwright"].num_nodes == 2


@pytest.mark.usefixtures("provider")
def test_a_training_that_succeeded_writes_the_folder_of_its_run(connected: EmbeddedCluster, set_status: Any) -> None:
    task = operator(workspace="pvc://w/team?size=1Gi", placement={"queue_name": "gpus"})
    trigger = deferred(task).trigger
    set_status(the_job(connected), "Complete")
    task.execute_complete(context(), event_of(trigger))
    reported = task.get_openlineage_facets_on_complete(None)
    (output,) = reported.outputs
    assert (output.namespace, output.name) == ("pvc://w", f"team/{run_folder('d/r')}")
    assert reported.job_facets["trainwright"].queue_name == "gpus"
    assert task.get_openlineage_facets_on_failure(None).outputs == []


@pytest.mark.usefixtures("provider")
def test_an_export_reads_that_folder_and_writes_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    task = operators.ExportCheckpointOperator(task_id="export", export_uri="s3://bucket/e", workspace="w")
    assert task.get_openlineage_facets_on_start().outputs == []
    exported = {"uri": "s3://bucket/e/r/checkpoint-5", "digest": "sha256:d", "step": 5, "bytes": 9}
    monkeypatch.setattr(task, "check_places", lambda *_: None)
    monkeypatch.setattr(task, "steps", contextmanager(lambda _context, _run: iter([lambda _request, _run: exported])))
    task.execute(context())
    found = task.get_openlineage_facets_on_complete(None)
    assert [(entry.namespace, entry.name) for entry in found.inputs] == [("pvc://w", run_folder("d/r"))]
    (output,) = found.outputs
    assert (output.namespace, output.name) == ("s3://bucket", "e/r/checkpoint-5")
    assert output.facets["version"].datasetVersion == "sha256:d"
    assert output.outputFacets["outputStatistics"].size == 9


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("code", ["./program", "{{ params.code }}", ""])
def test_code_that_is_no_public_address_is_not_located(code: str) -> None:
    facets = operators.TrainJobOperator(task_id="train", code=code, runtime="r").get_openlineage_facets_on_start().job_facets
    assert set(facets) == {"trainwright"}
    task = operators.TrainJobOperator(task_id="train", runtime="r")
    task.code = "git+https://user:secret@host/repo@abc"
    assert "secret" not in repr(task.get_openlineage_facets_on_start().job_facets)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///data/rows", ("file", "/data/rows")),
        ("hf://org/model", ("https://huggingface.co", "org/model")),
        ("pvc://claim/path", ("pvc://claim", "path")),
        ("https://host/rows.jsonl?sig=secret", ("https://host", "rows.jsonl")),
        ("az://container", ("az://container", "/")),
        ("https://u:secret@host/rows.jsonl", None),
        ("{{ nothing }}", None),
    ],
)
def test_names_of_datasets(uri: str, name: tuple[str, str] | None) -> None:
    assert dataset_name(uri) == name


@pytest.mark.skipif(INSTALLED, reason="the provider is installed")
def test_without_the_provider_nothing_is_reported() -> None:
    task = operators.TrainJobOperator(task_id="t", runtime="r")
    assert task.get_openlineage_facets_on_start() is None
    assert task.get_openlineage_facets_on_complete(None) is None
