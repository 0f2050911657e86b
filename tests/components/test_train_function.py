"""Components of training functions: their inputs, outputs and calls, and what their step passes to `train`."""

import importlib.util
import inspect
import json
import sys
import tempfile
import textwrap
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from unittest.mock import patch

import pytest
import yaml
from interfaces import interface_of
from support.on_first_use import OnFirstUse

from trainwright.controlplane.node.expansion import expand_references
from trainwright.jobs.credentials.secret_detection import LiteralSecret
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import names_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.request.typed_parameters import typed_parameters
from trainwright.pipeline_runs.local_step import executor_input
from trainwright.pipeline_runs.step_command import runner_arguments
from trainwright.steps import run
from trainwright.steps.training.kfp_outputs import install
from trainwright.steps.training.kfp_parameters import asked

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


def step_parameters(document: dict[str, Any], executor: str, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters with which the step of a compiled task calls `train` for these inputs, and the outputs that it writes.

    `given` has, with the inputs of the task, the `results` of the training.
    """
    container = document["deploymentSpec"]["executors"][executor]["container"]
    component = next(one for one in document["components"].values() if one.get("executorLabel") == executor)
    real = shipped.train.python_func
    called: dict[str, Any] = {}

    def fake(**parameters: Any) -> tuple[Any, ...]:
        called.update(parameters)
        return "job", "default", "", given["results"], {}, {}

    fake.__signature__, fake.__annotations__ = inspect.signature(real), real.__annotations__  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        values = {name: value for name, value in given.items() if name != "results"}
        task = executor_input(component, {"run_id": "r", **values}, Path(folder))
        arguments = [json.dumps(task) if word == "{{$}}" else word for word in runner_arguments(container) or []]
        with patch.object(sys.modules["trainwright.components.train.component"], "train", fake):
            run.main(arguments)
        written = json.loads(Path(task["outputs"]["outputFile"]).read_text("utf-8"))
    return called, written["parameterValues"]


def settings_in(parameters: dict[str, Any]) -> dict[str, Any]:
    """Of the parameters of `train`, those that are settings of its request."""
    return {name: value for name, value in parameters.items() if name in names_of(TrainRequest)}


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
    request = asked(TrainRequest, settings_in(parameters))
    assert request.func_args == {"steps": 4, "rate": 1.0, "flag": False, "name": "false", "layers": ["x"]}
    assert [type(value) for value in request.func_args.values()] == [int, float, bool, str, list]
    assert request.func is not None
    assert request.func.name == "fit"
    assert (returned["loss"], returned["steps"]) == (0.5, 4)
    assert returned["results"] == {"loss": 0.5, "steps": 4.0}


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
        assert asked(TrainRequest, settings_in(parameters)).func_args == expected
        assert returned["Output"] is None


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


def test_artifact_of_a_step_is_refused_as_an_argument() -> None:
    def reads(rows: dsl.Input[dsl.Dataset]) -> None: ...  # type: ignore[valid-type]

    def writes(base: "dsl.OutputPath(str)") -> None: ...  # type: ignore[valid-type]

    with pytest.raises(TypeError, match=r"reads: 'rows' is an artifact of a step.*give it to the component as dataset="):
        shipped.train_function(reads)
    with pytest.raises(TypeError, match=r"writes: 'base' is an artifact of a step.*write checkpoints to /workspace/output"):
        shipped.train_function(writes)
    with pytest.raises(TypeError, match=r"dataset is given where the component is called"):
        shipped.train_function(dataset="x")(measured)


def measured() -> dict:
    return {"accuracy": 1}


def test_object_that_a_function_returns_is_its_output(tmp_path: Path) -> None:
    component = shipped.train_function(measured)
    assert interface_of(component)["output"]["Output"] == {"type": "STRUCT"}
    _, returned = step_parameters(compiled(component, tmp_path), "exec-measured", {"results": {"accuracy": 1}})
    assert returned["Output"] == {"accuracy": 1}


def test_run_of_a_first_step_names_the_run_of_a_function(tmp_path: Path, fit: Any) -> None:
    @dsl.pipeline
    def pipeline(run: dict) -> None:
        fit(steps=1, run=run)

    given = compiled(pipeline, tmp_path)["root"]["dag"]["tasks"]["fit"]["inputs"]["parameters"]
    assert given["run"] == {"componentInputParameter": "run"}
    assert "run_id" not in given, "it would take precedence over that of the run"


def test_unknown_setting_of_a_group_is_refused_at_decoration_and_in_a_call(fit: Any) -> None:
    with pytest.raises(InvalidSettings, match=r"measured: limits.restart: unknown; did you mean restarts\?"):
        shipped.train_function(limits={"restart": 1})(measured)
    with pytest.raises(InvalidSettings, match=r"fit\(\): limits.restart: unknown; did you mean restarts\?"):
        fit(steps=1, limits={"restart": 1})


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


def test_credential_in_a_function_its_decorator_or_a_call_is_refused(fit: Any) -> None:
    token = "hf_" + "a" * 34
    with pytest.raises(LiteralSecret):
        fit(steps=1, name=token)
    with pytest.raises(LiteralSecret):
        fit(steps=1, layers=[token, dsl.PIPELINE_JOB_ID_PLACEHOLDER])

    def train(name: str = "x") -> None:
        print("postgres://me:hunter2@db")

    with pytest.raises(LiteralSecret):
        shipped.train_function(train)
    for settings in ({"func_args": {"name": token}}, {"tracking": [f"mlflow:https://me:{token}@host"]}):
        with pytest.raises(LiteralSecret):
            shipped.train_function(**settings)(_harmless)


def _harmless(name: str = "x") -> None:
    print(name)


def test_large_integer_reaches_the_function_as_it_is(tmp_path: Path) -> None:
    @shipped.train_function(func_args={"fixed": BIG})
    def seeded(seed: int, others: list, fixed: int, default: int = 1152921504606846979) -> None: ...

    @dsl.pipeline
    def one(count: int = 1) -> None:
        seeded(seed=BIG, others=[BIG, 1])
        seeded(seed=1, others=[count, BIG])

    document = compiled(one, tmp_path)
    arguments = step_parameters(document, "exec-seeded", {"results": {}})[0]["func_args"]
    assert arguments == {"seed": BIG, "others": [BIG, 1], "fixed": BIG}
    assert seeded.component_spec.inputs["default"].default is None
    others = document["root"]["dag"]["tasks"]["seeded-2"]["inputs"]["parameters"]["others"]["runtimeValue"]["constant"]
    assert typed_parameters(TrainRequest, {"func_args": {"others": others[1:]}})["func_args"]["others"] == [BIG]


def test_large_integer_inside_an_object_of_train_is_text_with_its_type(tmp_path: Path) -> None:
    @dsl.pipeline
    def one() -> None:
        shipped.train(run_id="r", builtin="sft", settings={"seed": BIG, "steps": 4}, env={"SEED": BIG})

    given = compiled(one, tmp_path)["root"]["dag"]["tasks"]["train"]["inputs"]["parameters"]
    found = typed_parameters(TrainRequest, {name: given[name]["runtimeValue"]["constant"] for name in ("settings", "env")})
    assert found == {"settings": {"seed": BIG, "steps": 4.0}, "env": {"SEED": str(BIG)}}


DOLLARS = "kill $$; echo 100%24 $(HOME) $$(HOME) é"


def expanded(value: Any) -> Any:
    """A value in the arguments of a pod, after Kubernetes."""
    return json.loads(expand_references(json.dumps(value), {"HOME": "/root"}))


def test_doubled_dollars_reach_the_function_as_they_are(tmp_path: Path) -> None:
    @shipped.train_function(func_args={"fixed": DOLLARS}, env={"TEXT": DOLLARS})
    def show(text: str, others: list, fixed: str, default: str = "$$") -> None: ...

    @dsl.pipeline
    def one() -> None:
        show(text=DOLLARS, others=[DOLLARS, {"a": DOLLARS}])

    given = step_parameters(expanded(compiled(one, tmp_path)), "exec-show", {"results": {}})[0]
    found = typed_parameters(TrainRequest, {name: given[name] for name in ("func_args", "env")})
    assert found["func_args"] == {"text": DOLLARS, "others": [DOLLARS, {"a": DOLLARS}], "fixed": DOLLARS}
    assert found["env"] == {"TEXT": DOLLARS}
    assert show.component_spec.inputs["default"].default is None, "the function has it"


def test_doubled_dollars_inside_an_object_of_train_are_text_with_its_type(tmp_path: Path) -> None:
    @dsl.pipeline
    def one() -> None:
        shipped.train(
            run_id="r", command=["sh", "-c", DOLLARS], env={"TEXT": DOLLARS}, placement={"annotations": {"note": DOLLARS}}
        )

    given = expanded(compiled(one, tmp_path)["root"]["dag"]["tasks"]["train"]["inputs"]["parameters"])
    found = typed_parameters(TrainRequest, {name: one["runtimeValue"]["constant"] for name, one in given.items()})
    assert [found["command"][2], found["env"]["TEXT"], found["placement"]["annotations"]["note"]] == [DOLLARS, DOLLARS, DOLLARS]


@pytest.mark.parametrize("given", [{"func": "def f():\n    return '$$'"}, {"env": {"$$": "1"}}, {"args": ["$$-{}"]}])
def test_doubled_dollars_that_would_be_single_ones_are_refused(given: dict[str, Any]) -> None:
    def flow(name: str) -> None:
        shipped.train(run_id="r", **{**given, **({"args": [f"$$-{name}"]} if "args" in given else {})})

    with pytest.raises(ValueError, match=r"train\(\): (func|env|args): Kubernetes makes"):
        dsl.pipeline(flow)


def test_settings_of_a_group_come_from_decorator_and_call(tmp_path: Path) -> None:
    @shipped.train_function(limits={"run_timeout_seconds": 3600, "preemption_budget": 0, "restarts": 2})
    def show() -> None: ...

    @dsl.pipeline
    def one() -> None:
        show(limits={"restarts": 1})

    given = compiled(one, tmp_path)["root"]["dag"]["tasks"]["show"]["inputs"]["parameters"]["limits"]["runtimeValue"]["constant"]
    assert given == {"run_timeout_seconds": 3600, "preemption_budget": 0, "restarts": 1}

    def other(limits: dict) -> None:
        show(limits=limits)

    with pytest.raises(TypeError, match=r"show\(\): limits: the decorator sets it too"):
        dsl.pipeline(other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda fit: shipped.train(run_id="r", queue_name="gpus"),
            r"train\(\) has no parameter 'queue_name'; it is placement\.queue_name",
        ),
        (
            lambda fit: shipped.train_function(queue_name="gpus")(fit.python_func),
            r"'queue_name' is no setting of a function \(it is placement\.queue",
        ),
        (lambda fit: fit(steps=1, restarts=1), r"restarts is limits\.restarts"),
        (
            lambda fit: shipped.train(run_id="r", limits={"queue_name": "gpus"}),
            r"limits\.queue_name: unknown; it is placement\.queue_name",
        ),
    ],
)
def test_setting_at_the_wrong_place_is_refused_with_its_path(fit: Any, call: Any, message: str) -> None:
    def flow() -> None:
        call(fit)

    with pytest.raises((TypeError, InvalidSettings), match=message):
        dsl.pipeline(flow)


def program_of(component: Any) -> str:
    """The part of a component's command that differs between functions, which a cache compares."""
    command: list[str] = component.component_spec.implementation.container.command
    return command[-1]


def test_source_with_references_of_others_arrives_as_it_is(tmp_path: Path) -> None:
    def greet(name: str = "x") -> str:
        # {{workflow.name}} {{{{ {{$.inputs.parameters['name']}} $(HOME) $$ \\{{ \\$(X) "ä" 'b' \u2028
        return f"{{{name}}} $$1 $(HOME) {{{{$}}}}\\{{"

    component = shipped.train_function(greet)
    text = program_of(component)
    assert "{{" not in text
    assert "$" not in text
    called, _ = step_parameters(compiled(component, tmp_path), "exec-greet", {"results": {"value": "v"}})
    assert called["func"] == textwrap.dedent(inspect.getsource(greet))


def test_changed_function_or_decorator_is_another_program() -> None:
    def one(steps: int, rate: float = 1) -> None: ...

    def other() -> Any:
        def one(steps: int, rate: float = 2) -> None: ...

        return one

    components = [
        shipped.train_function(one),
        shipped.train_function(other()),
        shipped.train_function(one, num_nodes=2),
        shipped.train_function(one, limits={"restarts": 1}),
        shipped.train_function(one, func_args={"steps": 1}),
        shipped.train_function(one, func_args={"steps": 2}),
    ]
    assert len({program_of(each) for each in components}) == len(components)


@pytest.fixture(scope="module")
def named_as_groups() -> Any:
    @shipped.train_function(limits={"restarts": 3}, env={"SEED": BIG})
    def named(model: str, data: dict, limits: list = [1], dataset: str | None = None, **others: int) -> None: ...  # noqa: B006

    return named


def test_argument_with_the_name_of_a_group_or_an_artifact_replaces_it(tmp_path: Path, named_as_groups: Any) -> None:
    @dsl.pipeline
    def pipeline(text: str, options: dict) -> None:
        named_as_groups(model=text, data=options, limits=[1, 2], dataset=None, more=3)

    interface = interface_of(named_as_groups)["input"]
    assert {name: interface[name]["type"] for name in ("model", "data", "limits", "dataset")} == {
        "model": "STRING",
        "data": "STRUCT",
        "limits": "LIST",
        "dataset": "STRING",
    }
    document = compiled(pipeline, tmp_path)
    given = {"model": "gpt", "data": {"restarts": 7}, "limits": [1, 2], "more": 3, "results": {}}
    called, _ = step_parameters(document, "exec-named", given)
    assert (called["limits"], called["model"], called["dataset"]) == ({"restarts": 3}, None, None)
    assert "data" not in called
    request = asked(TrainRequest, settings_in(called))
    assert request.func_args == {"model": "gpt", "data": {"restarts": 7}, "limits": [1, 2], "dataset": None, "more": 3}
    assert request.limits.restarts == 3
    assert request.env == {"SEED": str(BIG)}


def test_setting_of_the_decorator_is_checked_beside_an_argument_of_its_name(named_as_groups: Any) -> None:
    def named(limits: list) -> None: ...

    with pytest.raises(InvalidSettings, match=r"named: limits.restart: unknown; did you mean restarts\?"):
        shipped.train_function(named, limits={"restart": 1})
    with pytest.raises(TypeError, match="named: the argument 'num_nodes' has the name of a parameter of train"):
        named_as_groups(model="m", data={}, func_args={"num_nodes": 2})
    with pytest.raises(TypeError, match="named: the argument 'metrics' has the name of a parameter of train"):
        named_as_groups(model="m", data={}, metrics=2)


TEXT = "a \"quoted\" \\ text, '1' and {}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 0, "rate": 0.0, "flag": False, "name": "", "layers": [], "most": None},
        {"steps": -1, "rate": 1e-30, "flag": True, "name": TEXT, "layers": [TEXT, {"a": [False, ""]}], "most": 2**53},
        {"steps": 2**53, "rate": 1.0, "flag": False, "name": "null", "layers": ["1", 2**60 + 1], "most": 0},
    ],
)
def test_constants_reach_the_function_as_they_are(arguments: dict[str, Any], tmp_path: Path, fit: Any) -> None:
    @dsl.pipeline
    def pipeline() -> None:
        fit(**arguments)

    document = compiled(pipeline, tmp_path)
    inputs = document["root"]["dag"]["tasks"]["fit"]["inputs"]["parameters"]
    given = {name: inputs[name]["runtimeValue"]["constant"] for name in arguments if name in inputs}
    called, _ = step_parameters(document, "exec-fit", {**given, "results": {"loss": 1, "steps": 1}})
    found = asked(TrainRequest, settings_in(called)).func_args
    assert json.dumps(found, sort_keys=True) == json.dumps(arguments, sort_keys=True)


def test_none_of_the_decorator_is_passed_on(tmp_path: Path) -> None:
    def measured(most: int | None = 5) -> None: ...

    component = shipped.train_function(measured, func_args={"most": None})
    called, _ = step_parameters(compiled(component, tmp_path), "exec-measured", {"results": {}})
    assert called["func_args"] == {"most": None}


def test_dates_and_durations_are_inputs_that_the_step_converts(tmp_path: Path) -> None:
    @shipped.train_function()
    def dated(since: datetime, day: date | None = None, most: timedelta = None, days: list[date] = []) -> None: ...  # noqa: B006, RUF013

    @dsl.pipeline
    def pipeline(moment: str, seconds: int) -> None:
        dated(since=moment, most=seconds, days=[date(2026, 1, 31)])

    types = {name: about["type"] for name, about in interface_of(dated)["input"].items()}
    kinds = {"since": "STRING", "day": "STRING", "most": "NUMBER_DOUBLE", "days": "LIST"}
    assert {name: types[name] for name in kinds} == kinds
    given = {"since": "2026-01-31T12:00:00Z", "most": 90, "days": ["2026-01-31"], "results": {}}
    called, _ = step_parameters(compiled(pipeline, tmp_path), "exec-dated", given)
    request = asked(TrainRequest, settings_in(called))
    assert request.func_args == {"since": "2026-01-31T12:00:00+00:00", "most": 90.0, "days": ["2026-01-31"]}
    with pytest.raises(TypeError, match=r"dated\(\): since: expected a date with its time, as .*, got '2026-01-31'"):
        dated(since="2026-01-31")


def test_argument_of_a_type_that_json_does_not_have_is_refused_at_decoration() -> None:
    def tagged(tags: set[str]) -> None: ...

    with pytest.raises(ValueError, match="tagged: the parameter 'tags' is annotated as set, and arguments are JSON"):
        shipped.train_function(tagged)
