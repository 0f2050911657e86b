"""Tasks of the components are not cached unless their pipeline asks for it; those of YAML components are, which is warned of."""

from pathlib import Path
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.run_checks import cacheable_steps

compiler = OnFirstUse("kfp.compiler")
shipped = OnFirstUse("trainwright.components")
components = OnFirstUse("kfp.components")
dsl = OnFirstUse("kfp.dsl")
step_component = OnFirstUse("trainwright.components.step_component")

pytestmark = pytest.mark.medium
DATA = {"dataset_uri": "s3://bucket/data", "model_uri": "s3://bucket/model", "workspace": "pvc://w"}
COMPONENTS = sorted(file.parent.name for file in (Path(__file__).parents[2] / "components").glob("*/metadata.yaml"))


@pytest.fixture(scope="module")
def fit() -> Any:
    @shipped.train_function()
    def fit(steps: int) -> float:  # type: ignore[empty-body]
        ...

    return fit


@pytest.fixture(scope="module")
def foreign() -> Any:
    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def foreign(run_id: str) -> str:
        return run_id

    return foreign


def compiled(pipeline: Any, folder: Path) -> CompiledPipeline:
    file = folder / "pipeline.yaml"
    compiler.Compiler().compile(pipeline, str(file))
    return CompiledPipeline.parse(file.read_text("utf-8"), "test")


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_uncached(name: str) -> None:
    assert isinstance(getattr(shipped, name), step_component.StepComponent)


def test_tasks_called_in_python_are_cached_only_if_asked(tmp_path: Path, fit: Any) -> None:
    @dsl.pipeline
    def one() -> None:
        shipped.train(run_id="fixed", **DATA)
        shipped.initialize_dataset(run_id="fixed", dataset_uri="s3://bucket/data")
        fit(run_id="fixed", steps=3)
        asked = shipped.train(run_id="fixed", **DATA)
        asked.set_caching_options(True)

    tasks = compiled(one, tmp_path).documents[0]["root"]["dag"]["tasks"]
    cached = {name for name, task in tasks.items() if task.get("cachingOptions", {}).get("enableCache")}
    assert (len(tasks), cached) == (4, {"train-2"})


def test_a_step_that_would_return_the_results_of_another_run_is_warned_of(tmp_path: Path, fit: Any, foreign: Any) -> None:
    loaded = {}
    for component in (shipped.train, shipped.evaluate, fit):
        compiler.Compiler().compile(component, str(tmp_path / "component.yaml"))
        loaded[component.name] = components.load_component_from_file(str(tmp_path / "component.yaml"))

    @dsl.pipeline
    def one(run_id: str, other: str = "standing", empty: str = "") -> None:
        loaded["train"](run_id="fixed", **DATA)
        loaded["train"](run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **DATA)
        loaded["train"](run_id=run_id, **DATA)
        loaded["train"](run_id=empty, **DATA)
        loaded["train"](run_id="fixed", **DATA).set_caching_options(False)
        shipped.train(run_id="fixed", **DATA)
        foreign(run_id="fixed")
        with dsl.If(run_id != "", name="inner"):
            loaded["fit"](run_id="fixed", steps=3)
        loaded["fit"](run_id=other, steps=3)

    pipeline = compiled(one, tmp_path)
    warnings = cacheable_steps(pipeline)
    assert [warning.split(":")[0] for warning in warnings] == ["fit-2", "train", "fit"]
    assert "cached with the constant run_id 'fixed'" in warnings[1]
    assert "constant run_id 'mine'" in " ".join(cacheable_steps(pipeline, {"run_id": "mine"}))
    assert cacheable_steps(pipeline.without_cache()) == []
