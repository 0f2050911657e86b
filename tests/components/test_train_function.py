"""Components of training functions: their inputs, outputs and calls, and what their step passes to `train`."""

import importlib.util
import inspect
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypedDict
from unittest.mock import patch

import pytest
import yaml
from interfaces import interface_of
from support.on_first_use import OnFirstUse

from trainwright.jobs import TrainRequest
from trainwright.jobs.request.typed_parameters import typed_parameters
from trainwright.steps.finite_outputs import install

compiler = OnFirstUse("kfp.compiler")
dsl = OnFirstUse("kfp.dsl")
shipped = OnFirstUse("trainwright.components")

pytestmark = pytest.mark.medium


class Figures(NamedTuple):
    loss: float
    steps: int


class Named(TypedDict):
    accuracy: float


@pytest.fixture(scope="module")
def fit() -> Any:
    @shipped.train_function(num_nodes=2, image="example.com/torch:1", packages_to_install=["einops"])
    def fit(
        steps: int,
        rate: float = 1,
        flag: bool = False,
        name: str = "x",
        layers: list = [1, 2],  # noqa: B006
        most: int | None = None,
    ) -> Figures:  # type: ignore[empty-body]
        """Fit a model."""

    return fit


@pytest.fixture(scope="module")
def measure() -> Any:
    @shipped.train_function()
    def measure(kind, n=3) -> float:  # type: ignore[no-untyped-def, empty-body]
        ...

    return measure


@pytest.fixture(scope="module")
def say() -> Any:
    @dsl.component(base_image="python:3.11", install_kfp_package=False)
    def say(text: str) -> None: ...

    return say


def compiled(pipeline: Any, tmp_path: Path) -> dict[str, Any]:
    compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))
    document: dict[str, Any] = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text("utf-8")))
    return document


def step_parameters(document: dict[str, Any], executor: str, given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The parameters with which the program of a compiled task calls `train` for these inputs, and what it returns for a result."""
    container = document["deploymentSpec"]["executors"][executor]["container"]
    program = container["command"][-1]
    module = ModuleType("program")
    exec(compile(program, "program", "exec", dont_inherit=True), vars(module))
    called: dict[str, Any] = {}

    def fake(**parameters: Any) -> tuple[Any, ...]:
        called.update(parameters)
        return "job", "default", "", given["results"], {}

    function = vars(module)[container["args"][-1]]
    inputs = {name: value for name, value in given.items() if name != "results"}
    with patch.object(sys.modules["trainwright.components.train.component"], "train", fake):
        returned = function(run_id="r", metrics=None, loss_curve=None, **inputs)
    return called, returned


def test_component_has_inputs_of_the_functions_types_and_outputs_of_its_annotation(
    tmp_path: Path, fit: Any, measure: Any
) -> None:
    interface = interface_of(fit)
    types = {name: (about["type"], about.get("default")) for name, about in interface["input"].items()}
    assert types["steps"] == ("NUMBER_INTEGER", None)
    assert types["rate"] == ("NUMBER_DOUBLE", 1.0)
    assert types["flag"] == ("BOOLEAN", False)
    assert types["layers"] == ("LIST", [1, 2])
    assert types["most"] == ("NUMBER_INTEGER", None)
    assert (types["num_nodes"], types["image"]) == (("NUMBER_INTEGER", 2.0), ("STRING", "example.com/torch:1"))
    assert not {"func", "command", "settings", "manifest"} & types.keys()
    assert {name: interface["output"][name]["type"] for name in ("loss", "steps")} == {
        "loss": "NUMBER_DOUBLE",
        "steps": "NUMBER_INTEGER",
    }
    document = compiled(fit, tmp_path)
    assert document["pipelineInfo"]["name"] == "fit"
    assert "# Description: Fit a model." in (tmp_path / "pipeline.yaml").read_text("utf-8")
    assert interface_of(measure)["output"]["Output"] == {"type": "NUMBER_DOUBLE"}


def test_arguments_of_a_call_keep_their_types(tmp_path: Path, fit: Any) -> None:
    @dsl.pipeline
    def pipeline(steps: int, rate: int, flag: bool, text: str, layers: list) -> None:
        task = fit(steps=steps, rate=rate, flag=flag, name=text, layers=layers, env={"N": steps}, num_nodes=3)
        with dsl.If(task.outputs["loss"] > 0.3):
            fit(func_args={"steps": steps, "layers": layers, "flag": flag}, rate=0.5)

    document = compiled(pipeline, tmp_path)
    task = document["root"]["dag"]["tasks"]["fit"]
    inputs = task["inputs"]["parameters"]
    assert {name: inputs[name] for name in ("steps", "flag", "layers")} == {
        name: {"componentInputParameter": name} for name in ("steps", "flag", "layers")
    }
    assert inputs["num_nodes"] == {"runtimeValue": {"constant": 3}}
    assert inputs["run_id"] == {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}
    assert inputs["env"]["runtimeValue"]["constant"]["N"]["trainwright.dev/type"] == "int"
    inner = document["components"]["comp-condition-1"]["dag"]["tasks"]["fit-2"]["inputs"]["parameters"]
    assert inner["layers"] == {"componentInputParameter": "pipelinechannel--layers"}

    given = {"steps": 4, "rate": 1.0, "flag": False, "name": "false", "layers": ["x"], "results": {"loss": 0.5, "steps": 4.0}}
    parameters, returned = step_parameters(document, "exec-fit", given)
    request = TrainRequest.from_parameters(typed_parameters(parameters))
    assert request.func_args == {"steps": 4, "rate": 1.0, "flag": False, "name": "false", "layers": ["x"]}
    assert [type(value) for value in request.func_args.values()] == [int, float, bool, str, list]
    assert request.func is not None
    assert request.func.name == "fit"
    assert returned[-2:] == (0.5, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, r"fit\(\) needs the argument 'steps'"),
        ({"stepz": 1}, r"no argument 'stepz' \(did you mean steps\?\).*needs the argument 'steps'"),
        ({"func_args": {"stepz": 1}}, r"no argument 'stepz' \(did you mean steps\?\).*needs the argument 'steps'"),
        ({"steps": 1, "num_node": 2}, r"no argument 'num_node' .*did you mean num_nodes\?"),
        ({"steps": "x"}, "steps: expected an integer, got 'x'"),
        ({"steps": 1, "name": False}, "name: expected text, got False"),
        ({"steps": 1, "func_args": {"steps": 2}}, "steps is given twice"),
    ],
)
def test_unfit_call_is_refused_when_compiled(arguments: dict[str, Any], words: str, fit: Any) -> None:
    with pytest.raises(TypeError, match=words):

        @dsl.pipeline
        def pipeline() -> None:
            fit(**arguments)


def test_value_of_another_type_is_refused_when_compiled(fit: Any) -> None:
    with pytest.raises(TypeError, match="name: expected text, got a value of type bool"):

        @dsl.pipeline
        def pipeline(flag: bool) -> None:
            fit(steps=1, name=flag)

    with pytest.raises(TypeError, match=r"steps: .* is an artifact, which a training pod cannot read"):

        @dsl.pipeline
        def another() -> None:
            fit(steps=fit(steps=1).outputs["metrics"])


def test_item_of_a_loop_is_not_cut_to_an_integer(tmp_path: Path, fit: Any) -> None:
    @dsl.pipeline
    def pipeline(items: list) -> None:
        with dsl.ParallelFor([1, 0.5]) as rate:
            fit(steps=1, rate=rate)
        with dsl.ParallelFor([{"n": 1, "label": "a"}]) as item:
            fit(steps=item.n, name=item.label)
        with dsl.ParallelFor(items) as steps:
            fit(steps=steps)

    components = compiled(pipeline, tmp_path)["components"]
    types = [
        {key: about["parameterType"] for key, about in components[name]["inputDefinitions"]["parameters"].items()}
        for name in ("comp-fit", "comp-fit-2", "comp-fit-3")
    ]
    assert types[0]["rate"] == "NUMBER_DOUBLE"
    assert (types[1]["steps"], types[1]["name"]) == ("NUMBER_INTEGER", "STRING")
    assert types[2]["steps"] == "NUMBER_DOUBLE", "items may be any numbers; the step refuses 0.5 for an integer"


def test_function_without_annotations_gets_values_of_their_types(tmp_path: Path, measure: Any) -> None:
    @dsl.pipeline
    def pipeline(flag: bool, text: str, options: dict) -> None:
        measure(kind=flag)
        measure(func_args={"kind": text, "n": None})
        measure(func_args=options)

    document = compiled(pipeline, tmp_path)
    for executor, given, expected in (
        ("exec-measure", {"kind": False, "n": 3.0}, {"kind": False, "n": 3}),
        ("exec-measure-2", {"kind": "false"}, {"kind": "false", "n": None}),
        ("exec-measure-3", {"func_args": {"kind": 1.0}}, {"kind": 1}),
    ):
        parameters, returned = step_parameters(document, executor, {**given, "results": {"value": None}})
        assert TrainRequest.from_parameters(typed_parameters(parameters)).func_args == expected
        assert math.isnan(returned[-1]), "it is written as null"


@pytest.mark.parametrize(
    ("results", "words"),
    [({}, "returned nothing"), ({"value": "x"}, "expected a number, got 'x'"), ({"a": 1}, "returned an object with a")],
)
def test_result_without_the_declared_output_fails_the_step(
    results: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], measure: Any
) -> None:
    with pytest.raises(SystemExit):
        step_parameters(compiled(measure, tmp_path), "exec-measure", {"func_args": {"kind": 1}, "results": results})
    assert words in capsys.readouterr().err


def test_argument_with_the_name_of_a_parameter_of_train_is_refused_at_decoration() -> None:
    def takes_workspace(workspace: str) -> None: ...

    def returns_results() -> Named: ...  # type: ignore[empty-body]

    with pytest.raises(TypeError, match="the argument 'workspace' has the name of a parameter of train; rename"):
        shipped.train_function()(takes_workspace)
    with pytest.raises(TypeError, match=r"train_function: 'num_node' is no setting of a function \(did you mean num_nodes\?\)"):
        shipped.train_function(num_node=2)(returns_results)
    assert interface_of(shipped.train_function()(returns_results))["output"]["accuracy"] == {"type": "NUMBER_DOUBLE"}


def test_values_inside_an_object_of_train_keep_their_types(tmp_path: Path, say: Any) -> None:
    @dsl.pipeline
    def pipeline(steps: int, flag: bool, text: str) -> None:
        shipped.train(run_id="r", func="def f(a, b, c): ...", func_args={"a": steps, "b": flag, "c": text}, env={"N": steps})
        say(text=text)

    inputs = compiled(pipeline, tmp_path)["root"]["dag"]["tasks"]["train"]["inputs"]["parameters"]
    arguments = inputs["func_args"]["runtimeValue"]["constant"]
    assert {name: one["trainwright.dev/type"] for name, one in arguments.items()} == {"a": "int", "b": "bool", "c": "str"}


def test_output_that_is_not_finite_is_written_as_null(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from kfp.dsl import executor

    install()
    file = tmp_path / "program.py"
    file.write_text(
        "from kfp import dsl\nfrom typing import NamedTuple\n"
        "def f(m: dsl.Output[dsl.Metrics]) -> NamedTuple('Outputs', [('loss', float), ('all', dict)]):\n"
        "    m.log_metric('loss', float('inf'))\n    return float('nan'), {'a': [float('nan'), 1]}\n",
        "utf-8",
    )
    spec = importlib.util.spec_from_file_location("program_with_nan", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    artifact = {"name": "m", "uri": str(tmp_path / "m"), "metadata": {}, "type": {"schemaTitle": "system.Metrics"}}
    outputs = {
        "artifacts": {"m": {"artifacts": [artifact]}},
        "parameters": {},
        "outputFile": str(tmp_path / "out" / "output.json"),
    }
    executor.Executor({"inputs": {}, "outputs": outputs}, module.f).execute()
    written = yaml.safe_load((tmp_path / "out" / "output.json").read_text("utf-8"))
    assert written["parameterValues"] == {"loss": None, "all": {"a": [None, 1]}}
    assert written["artifacts"]["m"]["artifacts"][0]["metadata"] == {"loss": None}
    assert "NaN" not in (tmp_path / "out" / "output.json").read_text("utf-8")
    messages = [record.getMessage() for record in caplog.records]
    assert "event=output_changed output=m loss: inf is written as null" in messages
    assert "event=output_changed output=all a[0]: nan is written as null" in messages


def test_component_is_a_python_component(fit: Any) -> None:
    assert isinstance(fit, type(shipped.train))
    assert inspect.getdoc(fit) == "Fit a model."


BIG = 2**60 + 1


def test_large_integer_reaches_the_function_as_it_is(tmp_path: Path) -> None:
    @shipped.train_function(func_args={"fixed": BIG})
    def seeded(seed: int, others: list, fixed: int, default: int = 1152921504606846979) -> None: ...

    @dsl.pipeline
    def one(words: list = []) -> None:  # noqa: B006
        seeded(seed=BIG, others=[BIG, 1])
        seeded(seed=1, others=[words, BIG])

    document = compiled(one, tmp_path)
    arguments = step_parameters(document, "exec-seeded", {"results": {}})[0]["func_args"]
    assert arguments == {"seed": BIG, "others": [BIG, 1], "fixed": BIG}
    assert seeded.component_spec.inputs["default"].default is None
    others = document["root"]["dag"]["tasks"]["seeded-2"]["inputs"]["parameters"]["others"]["runtimeValue"]["constant"]
    assert typed_parameters({"func_args": {"others": others[1:]}})["func_args"]["others"] == [BIG]


def test_large_integer_inside_an_object_of_train_is_text_with_its_type(tmp_path: Path) -> None:
    @dsl.pipeline
    def one() -> None:
        shipped.train(run_id="r", builtin="sft", settings={"seed": BIG, "steps": 4}, env={"SEED": BIG})

    given = compiled(one, tmp_path)["root"]["dag"]["tasks"]["train"]["inputs"]["parameters"]
    found = typed_parameters({name: given[name]["runtimeValue"]["constant"] for name in ("settings", "env")})
    assert found == {"settings": {"seed": BIG, "steps": 4.0}, "env": {"SEED": str(BIG)}}
