"""The program of every step: it finds the function in the image, and refuses a compiled component that does not fit it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.on_first_use import OnFirstUse

import trainwright
from trainwright.pipeline_runs.step_command import step_command
from trainwright.steps.run import WrongVersion, check_fits

dsl = OnFirstUse("kfp.dsl")
COMPONENTS = Path(trainwright.__file__).with_name("components")
MODULES = [f"trainwright.components.{path.parent.name}.component" for path in sorted(COMPONENTS.glob("*/component.py"))]
PLAN = "trainwright.components.plan_trials.component"


def plan(folder: Path, inputs: dict[str, Any], *more: str, version: str = trainwright.__version__, module: str = PLAN) -> Any:
    """Run the compiled command of a step as a container does."""
    outputs = {"parameters": {"trials": {}, "count": {}}, "outputFile": str(folder / "output.json")}
    given = json.dumps({"inputs": {"parameterValues": inputs}, "outputs": outputs}, ensure_ascii=False)
    command = [*step_command(module, version), *more, "--executor_input", given, "--function_to_execute", "plan_trials"]
    python = str(Path(sys.executable).parent)
    environ = {**os.environ, "PATH": f"{python}:/usr/bin:/bin", "TRAINWRIGHT_TERMINATION_LOG": str(folder / "message")}
    (folder / "message").touch()
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environ, check=False)


@pytest.mark.medium
def test_command_runs_the_function_of_the_image(tmp_path: Path) -> None:
    done = plan(tmp_path, {"run_id": "r", "trials": [{"seed": 1}, {"seed": 2}]})
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "output.json").read_text())["parameterValues"]["count"] == 2
    assert "warning" not in done.stdout


@pytest.mark.medium
@pytest.mark.parametrize(
    "locale", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}], ids=["usual", "no UTF-8"]
)
def test_text_of_any_script_arrives_in_an_image_of_any_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: dict[str, str]
) -> None:
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    done = plan(tmp_path, {"run_id": "r", "trials": [{"extra": ["--name", "Grün 緑"]}]})
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads((tmp_path / "output.json").read_text("utf-8"))["parameterValues"]["trials"]
    assert json.loads(trial)["settings"] == {"extra": ["--name", "Grün 緑"]}


@pytest.mark.medium
def test_function_of_another_version_is_one_line(tmp_path: Path) -> None:
    done = plan(tmp_path, {"run_id": "r"}, "--program", '{"function": {}, "modes": []}', version="9.0.0")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the image cannot read a training function: arguments, fixed, modes, outputs, settings; the pipeline was" in line


@pytest.mark.medium
def test_step_of_another_version_warns_in_one_line(tmp_path: Path) -> None:
    done = plan(tmp_path, {"run_id": "r", "trials": [{"seed": 1}]}, version="0.0.9")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if "warning" in line)
    assert "compiled with Trainwright 0.0.9, and the image of the step has " + trainwright.__version__ in line


@pytest.mark.medium
@pytest.mark.parametrize(
    ("inputs", "module", "said"),
    [
        ({"run_id": "r", "speed": 1}, PLAN, "plan_trials: the image has no input speed; the pipeline was compiled with"),
        ({"run_id": "r"}, "trainwright.components.tune.component", "the image has no component trainwright.components.tune."),
        ({"run_id": "r"}, "trainwright.steps.trials_of", "the image has no component trainwright.steps.trials_of.plan_trials"),
    ],
)
def test_component_that_the_image_does_not_have_is_one_line(
    tmp_path: Path, inputs: dict[str, Any], module: str, said: str
) -> None:
    done = plan(tmp_path, inputs, version="9.0.0", module=module)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert said in line
    assert (tmp_path / "message").read_text() == line
    assert not (tmp_path / "output.json").exists()


class Outputs(NamedTuple):
    loss: float


def given(
    inputs: tuple[str, ...], parameters: tuple[str, ...] = ("loss", "step"), artifacts: tuple[str, ...] = ("curve",)
) -> Any:
    outputs = {"parameters": dict.fromkeys(parameters), "artifacts": dict.fromkeys(artifacts)}
    return {"inputs": {"parameterValues": dict.fromkeys(inputs), "artifacts": {"data": {}}}, "outputs": outputs}


@pytest.mark.parametrize(
    ("executor_input", "problem"),
    [
        (given(("rate",)), ""),
        (given(("rate", "pipelinechannel--train-uri")), ""),
        (given(("rate", "epochs")), "the image has no input epochs"),
        (given(()), "the pipeline does not set the input rate"),
        (given(("rate",), ("loss", "step", "size")), "the image does not make the output size"),
        (given(("rate",), ("step", "Output")), "the image does not make the output Output"),
        (given(("rate",), artifacts=("curve", "model")), "the image does not make the output model"),
        (given(("rate",), artifacts=()), "the pipeline does not have the output curve"),
        (given(("rate",), ("loss",)), "the pipeline does not have the output step"),
    ],
)
def test_inputs_and_outputs_of_another_version_are_refused(executor_input: Any, problem: str) -> None:
    def fit(rate, curve, step, data, most=1): ...  # type: ignore[no-untyped-def]

    fit.__annotations__ = {
        "rate": float,
        "curve": dsl.Output[dsl.HTML],
        "step": dsl.OutputPath(int),
        "data": dsl.Input[dsl.Dataset],
        "return": Outputs,
    }
    if not problem:
        return check_fits(fit, executor_input)
    with pytest.raises(WrongVersion, match=f"^{problem}$"):
        check_fits(fit, executor_input)


@pytest.mark.medium
def test_every_function_imports_in_a_step_without_the_compiler_of_kfp() -> None:
    code = (
        f"import importlib, inspect, sys\nfor name in {MODULES!r}:\n"
        "    function = getattr(importlib.import_module(name), name.split('.')[2])\n"
        "    assert inspect.isfunction(function), name\n"
        "print(*sys.modules)"
    )
    environ = {**os.environ, "_KFP_RUNTIME": "true"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    loaded = set(done.stdout.split())
    assert not loaded & {
        "kfp.compiler",
        "kfp.dsl.pipeline_task",
        "kubernetes",
        "pydantic",
        "trainwright.jobs.submit",
        "trainwright.jobs.wait",
        "trainwright.cluster",
    }
