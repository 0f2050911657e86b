"""Artifacts of earlier steps as the data and the base model of a training: prepared in the workspace, or read from their address."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps.requests import InitializeDataset
from trainwright.steps.training.kfp_parameters import asked, of_artifacts, of_source, run_of

compiler = OnFirstUse("kfp.compiler")
dsl = OnFirstUse("kfp.dsl")
shipped = OnFirstUse("trainwright.components")

PREPARED = {"source": "hf://org/data", "revision": "abc", "digest": "sha256:" + "0" * 64}
EXPORT = {"location": "s3://models/r/step-9", "digest": "sha256:1", "step": 9}


def artifact(uri: str = "", **metadata: Any) -> Any:
    """As a step gets one."""
    return SimpleNamespace(uri=uri, path=uri.replace("://", "/"), metadata=metadata)


@pytest.mark.parametrize(
    ("given", "uri", "digest"),
    [
        (artifact("minio://mlpipeline/receipt", **PREPARED), "hf://org/data", PREPARED["digest"]),
        (artifact("s3://team/rows"), "s3://team/rows", ""),
        (artifact("/tmp/rows"), "file:///tmp/rows", ""),
        (artifact("s3://team/rows", digest="of the team"), "s3://team/rows", ""),
        (artifact("minio://mlpipeline/receipt", location="file:///workspace/x", **PREPARED), "file:///workspace/x", ""),
    ],
    ids=["prepared", "address", "path", "digest of a team", "location"],
)
def test_dataset_is_what_was_prepared_or_read_from_its_address(given: Any, uri: str, digest: str) -> None:
    found = of_artifacts(given)
    assert (found.dataset_uri, found.dataset_digest) == (uri, digest)


def test_prepared_model_brings_its_shape() -> None:
    sizes = ("parameters", "hidden", "layers", "vocabulary", "intermediate", "heads", "queries", "key_values", "embeddings")
    shape = dict.fromkeys(sizes, 64.0)  # a server keeps the numbers of metadata as doubles
    found = of_artifacts(model=artifact("minio://x/y", **PREPARED, shape=shape))
    assert found.model_uri == "hf://org/data"
    assert found.data.model_shape is not None
    assert str(found.data.model_shape.layers) == "64"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"dataset": artifact()}, "dataset: the artifact has no address"),
        (
            {"dataset": artifact("minio://mlpipeline/v2/rows")},
            "prepare it with initialize_dataset(source=...), or set dataset_uri=s3://mlpipeline/v2/rows and a",
        ),
        (
            {"model": artifact("oci://registry/model:1")},
            "model: the artifact is at oci://registry/model:1, and oci:// is not read",
        ),
        ({"model": artifact("minio://x/y", **EXPORT)}, "set resume=weights:s3://models/r/step-9"),
    ],
    ids=["none", "minio", "oci", "export"],
)
def test_artifact_without_a_readable_address_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSettings) as raised:
        of_artifacts(**given)
    assert problem in str(raised.value)


def test_address_is_given_once() -> None:
    request = TrainRequest.parse_some({"dataset_uri": "s3://other"})
    with pytest.raises(InvalidSettings, match="dataset_uri: given twice, with different values"):
        request.joined(of_artifacts(artifact("s3://team/rows")))
    with pytest.raises(InvalidSettings, match="dataset_uri: given twice, with different values"):
        asked(InitializeDataset, {"dataset_uri": "s3://other"}, of_source(artifact("s3://team/rows")))
    assert TrainRequest.parse_some({"dataset_uri": "s3://team/rows"}).joined(of_artifacts(artifact("s3://team/rows")))


def test_wrong_setting_of_a_run_is_named_by_its_path() -> None:
    with pytest.raises(InvalidSettings, match=r"^run\.training\.limits\.restart: unknown; did you mean"):
        run_of({"run_id": "r", "training": {"limits": {"restart": 1}}})


def test_source_of_a_preparation_is_an_address() -> None:
    assert asked(InitializeDataset, {}, of_source(artifact("s3://team/rows"))).dataset_uri == "s3://team/rows"
    with pytest.raises(InvalidSettings, match="dataset_uri: required"):
        asked(InitializeDataset, {}, of_source())
    with pytest.raises(InvalidSettings, match="source: the dataset is prepared already"):
        of_source(artifact("minio://x/y", **PREPARED))


def test_source_in_a_store_of_the_server_is_read_from_the_copy_in_the_step(tmp_path: Path) -> None:
    given = artifact("minio://mlpipeline/v2/rows")
    with pytest.raises(InvalidSettings, match="minio"):
        of_source(given)
    given.path = str(tmp_path)
    assert of_source(given).dataset_uri == f"file://{tmp_path}"
    given.metadata["location"] = "file:///workspace/pulled"
    assert of_source(given).dataset_uri == "file:///workspace/pulled", "the artifact is a receipt"


@pytest.mark.medium
def test_steps_of_a_team_give_their_artifacts_to_trainings_and_preparations(tmp_path: Path) -> None:
    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def select(rows: dsl.Output[dsl.Dataset], base: dsl.Output[dsl.Model]) -> None: ...

    @shipped.train_function
    def fit(steps: int = 1) -> None: ...

    @dsl.pipeline(name="team")
    def pipeline() -> None:
        made = select()
        rows, base = made.outputs["rows"], made.outputs["base"]
        shipped.initialize_dataset(source=rows)
        shipped.train(run_id="r", dataset=rows, model=base)
        fit(dataset=rows, model=base)

    compiler.Compiler().compile(pipeline, str(tmp_path / "p.yaml"))
    tasks = next(iter(yaml.safe_load_all((tmp_path / "p.yaml").read_text("utf-8"))))["root"]["dag"]["tasks"]
    for name, inputs in {"initialize-dataset": {"source"}, "train": {"dataset", "model"}, "fit": {"dataset", "model"}}.items():
        artifacts = tasks[name]["inputs"]["artifacts"]
        assert artifacts.keys() == inputs, name
        assert {one["taskOutputArtifact"]["producerTask"] for one in artifacts.values()} == {"select"}
