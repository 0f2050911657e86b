"""The compiled files are what kfp loads and what its server takes: complete, with the image that was asked for."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml
from interfaces import NAMES, compilables
from support.on_first_use import OnFirstUse

import trainwright
from trainwright.pipeline_runs.local_step import executor_input
from trainwright.steps.run import WrongVersion, check_fits

components = OnFirstUse("kfp.components")
dsl = OnFirstUse("kfp.dsl")
build = OnFirstUse("trainwright.pipelines.build")

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.stem: path for path in build.build(tmp_path_factory.mktemp("compiled"))}


def test_everything_is_compiled(compiled: dict[str, Path]) -> None:
    assert set(compiled) == set(compilables())


@pytest.mark.parametrize("edge", ["components", "pipelines"])
def test_every_folder_of_an_edge_has_a_component_or_pipeline_of_its_name(edge: str) -> None:
    """Not the package of that name: the edge's `__init__.py` binds the function over it."""
    folder = Path(trainwright.__file__).with_name(edge)
    module = importlib.import_module(f"trainwright.{edge}")
    assert [name for name in module.__all__ if not callable(getattr(module, name))] == []
    assert {path.parent.name for path in folder.glob("*/metadata.yaml")} <= {*module.__all__}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_loads_with_the_inputs_and_outputs_of_its_source(compiled: dict[str, Path], name: str) -> None:
    loaded = components.load_component_from_file(str(compiled[name]))
    for part in ("inputs", "outputs"):
        expected = getattr(compilables()[name].component_spec, part) or {}
        assert set(getattr(loaded.component_spec, part) or {}) == set(expected)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_pipeline")])
def test_function_of_a_component_fits_its_compiled_interface(compiled: dict[str, Path], name: str) -> None:
    spec = next(yaml.safe_load_all(compiled[name].read_text("utf-8")))
    (component,) = spec["components"].values()
    declared = {**component["inputDefinitions"].get("parameters", {}), **component["inputDefinitions"].get("artifacts", {})}
    required = {name: "" for name, about in declared.items() if not about.get("isOptional") or "STATUS" in str(about)}
    function = compilables()[name].python_func
    for inputs in (required, dict.fromkeys(declared, "")):
        check_fits(function, executor_input(component, inputs, Path("outputs")))
    with pytest.raises(WrongVersion, match="the image has no input another"):
        check_fits(function, {"inputs": {"parameterValues": {**required, "another": 1}}})


@pytest.mark.parametrize("name", ["train", "sweep_pipeline"])
def test_defaults_of_integers_have_no_decimals(compiled: dict[str, Path], name: str) -> None:
    document = next(yaml.safe_load_all(compiled[name].read_text("utf-8")))
    declared = document["root"]["inputDefinitions"]["parameters"].values()
    defaults = [each["defaultValue"] for each in declared if each["parameterType"] == "NUMBER_INTEGER" and "defaultValue" in each]
    assert defaults
    assert {type(default) for default in defaults} == {int}


def test_a_loaded_component_is_used_like_its_source(compiled: dict[str, Path], tmp_path: Path) -> None:
    from kfp import compiler

    start_run = components.load_component_from_file(str(compiled["start_run"]))

    @dsl.pipeline
    def loaded():  # type: ignore[no-untyped-def]  # kfp reads annotations
        start_run(workspace="pvc://w", run_id="r")

    compiler.Compiler().compile(loaded, str(tmp_path / "loaded.yaml"))
    assert "exec env _KFP_RUNTIME=true python3" in (tmp_path / "loaded.yaml").read_text()
