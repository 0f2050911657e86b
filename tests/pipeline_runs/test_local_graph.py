"""The order of tasks in a run on this machine: failures, retries, limits, groups and interrupts, without processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainwright.pipeline_runs import local_graph
from trainwright.pipeline_runs.local_graph import Graph, run_graph
from trainwright.pipeline_runs.local_inputs import State
from trainwright.pipeline_runs.local_lines import PrintedLines

SECONDS = 20.0


class World:
    """Runs specifications whose programs are functions of their place in the run; `ended` has the tasks in order."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.said: list[str] = []
        self.programs: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self.inputs: dict[str, dict[str, Any]] = {}
        self.started: list[str] = []
        self.running = self.most = 0
        self.side_by_side = 2
        self.lock = threading.Lock()

    def step(self, _container: Any, given: Any, environment: Any, *_: Any) -> int:
        place = str(Path(given["outputs"]["outputFile"]).parent.relative_to(self.graph.folder))
        with self.lock:
            self.started.append(place)
            self.inputs[place] = given["inputs"] | {"environment": dict(environment)}
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            value = self.programs.get(place, lambda _given: "done")(given["inputs"]["parameterValues"])
        finally:
            with self.lock:
                self.running -= 1
        if isinstance(value, BaseException):
            return value.args[0] if value.args else 1
        file = Path(given["outputs"]["outputFile"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"parameterValues": {"Output": value}}), "utf-8")
        return 0

    def run(self, root: dict[str, Any], groups: dict[str, dict[str, Any]] | None = None, **values: Any) -> bool:
        components = {"comp-do": {"executorLabel": "exec-do", "outputDefinitions": {"parameters": {"Output": TEXT}}}}
        components["comp-do"]["inputDefinitions"] = {"parameters": {"a": {"parameterType": "STRING", "isOptional": True}}}
        for name, group in (groups or {}).items():
            components[f"comp-{name}"] = group
        program = ["sh", "-ec", '"$program_path/ephemeral_component.py" kfp.dsl.executor_main', "pass"]
        spec = {
            "pipelineInfo": {"name": "p"},
            "root": root,
            "components": components,
            "deploymentSpec": {"executors": {"exec-do": {"container": {"command": program, "args": []}}}},
        }
        self.lines = PrintedLines(self.said.append)
        self.graph = replace(Graph.below(self.folder, spec, self.lines), side_by_side=self.side_by_side)
        self.succeeded, self.outputs = run_graph(self.graph, values)
        return self.succeeded


TEXT = {"parameterType": "STRING"}


def task(*after: str, component: str = "do", **more: Any) -> dict[str, Any]:
    return {"componentRef": {"name": f"comp-{component}"}, "dependentTasks": list(after), **more}


def dag(outputs: dict[str, Any] | None = None, inputs: tuple[str, ...] = (), **tasks: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): one for name, one in tasks.items()}
    declared = {name: {"parameterType": "STRING"} for name in inputs}
    return {"dag": {"tasks": named, "outputs": {"parameters": outputs or {}}}, "inputDefinitions": {"parameters": declared}}


def output(subtask: str, key: str = "Output") -> dict[str, Any]:
    return {"valueFromParameter": {"producerSubtask": subtask, "outputParameterKey": key}}


def loop(component: str, items: list[Any], *after: str, limit: int = 0) -> dict[str, Any]:
    policy = {"iteratorPolicy": {"parallelismLimit": limit}} if limit else {}
    iterator = {"itemInput": "item", "items": {"raw": json.dumps(items)}}
    return task(*after, component=component, parameterIterator=iterator, **policy)


AFTER_ALL = {"triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}}


def fail(_given: Any) -> RuntimeError:
    return RuntimeError()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path)
    monkeypatch.setattr(local_graph, "run_step", found.step)
    return found


def test_tasks_that_do_not_wait_for_each_other_run_side_by_side(world: World) -> None:
    both = threading.Barrier(2)
    world.programs = {name: lambda _given: (both.wait(SECONDS) and "x") or "x" for name in ("one", "two")}
    assert world.run(dag({"Output": output("last")}, one=task(), two=task(), last=task("one", "two")))
    assert (world.started[-1], world.outputs) == ("last", {"Output": "done"})


def test_no_task_starts_after_a_failure_but_those_after_every_end(world: World) -> None:
    status = {"inputs": {"parameters": {"a": {"taskFinalStatus": {"producerTask": "exit-handler-1"}}}}}
    block = dag(fail=task(), then=task("fail"), later=task("then"))
    world.programs = {"fail": fail}
    root = dag(
        exit_handler_1=task(component="block"), other=task("exit-handler-1"), clean=task("exit-handler-1", **status, **AFTER_ALL)
    )
    assert not world.run(root, {"block": block})
    assert world.started == ["fail", "clean"]
    assert json.loads(world.inputs["clean"]["parameterValues"]["a"]) == {
        "state": "FAILED",
        "pipelineJobResourceName": world.graph.folder.name,
        "pipelineTaskName": "exit-handler-1",
        "error": {"code": 1, "message": "exit-handler-1 failed"},
    }
    assert [failure.task.name for failure in world.lines.failures] == ["fail"]


def test_failed_exit_handler_fails_the_run(world: World) -> None:
    world.programs = {"clean": fail}
    assert not world.run(dag(work=task(), clean=task("work", **AFTER_ALL)))


def test_task_is_tried_again_as_often_as_it_says(world: World) -> None:
    tries = iter([RuntimeError(), RuntimeError(), "third"])
    world.programs = {"flaky": lambda _given: next(tries)}
    assert world.run(dag({"Output": output("flaky")}, flaky=task(retryPolicy={"maxRetryCount": 2, "backoffDuration": "0s"})))
    assert (world.started, world.outputs) == (["flaky"] * 3, {"Output": "third"})
    assert world.said.count("Executing task 'flaky'") == 1
    assert [line for line in world.said if "try" in line] == [f"[flaky] try {at} of 3 ended with exit code 1" for at in (1, 2)]


def test_process_that_is_killed_is_the_reason_of_the_failure(world: World) -> None:
    world.programs = {"one": lambda _given: RuntimeError(-9)}
    assert not world.run(dag(one=task()))
    assert world.lines.failures[0].task.message == "its process was ended by signal 9"


@pytest.mark.parametrize(
    ("policy", "pauses"),
    [
        ({}, [0, 0]),
        ({"backoffDuration": "5s"}, [5, 10]),
        ({"backoffDuration": "5s", "backoffFactor": 3.0, "backoffMaxDuration": "12s"}, [5, 12]),
    ],
)
def test_pause_before_a_retry_grows_up_to_its_limit(policy: dict[str, Any], pauses: list[float]) -> None:
    assert [local_graph._pause_before(attempt, policy) for attempt in (1, 2)] == pauses


def test_loop_keeps_its_limit_and_the_order_of_its_outputs(world: World) -> None:
    passes = {"inputs": {"parameters": {"a": {"componentInputParameter": "item"}}}}
    body = dag({"all": output("each")}, inputs=("item",), each=task(**passes))
    for at in range(6):
        world.programs[f"for-loop-1-iteration-{at}/each"] = lambda given: given["a"] + "!"
    root = dag({"Output": output("for-loop-1", "all")}, for_loop_1=loop("body", [6, "b", 4, 3, 2, 1], limit=1))
    assert world.run(root, {"body": body})
    assert world.outputs == {"Output": ["6!", "b!", "4!", "3!", "2!", "1!"]}
    assert world.most == 1


def test_loops_in_loops_are_collected_into_one_list(world: World) -> None:
    inner, outer = (
        dag({"x": output("each")}, each=task()),
        dag({"y": output("for-loop-2", "x")}, for_loop_2=loop("inner", [1, 2])),
    )
    for first in range(2):
        for second in range(2):
            place = f"for-loop-1-iteration-{first}/for-loop-2-iteration-{second}/each"
            world.programs[place] = lambda _given, text=f"{first}{second}": text
    assert world.run(
        dag({"Output": output("for-loop-1", "y")}, for_loop_1=loop("outer", ["a", "b"])), {"inner": inner, "outer": outer}
    )
    assert world.outputs == {"Output": ["00", "01", "10", "11"]}


def test_failure_in_a_loop_leaves_out_what_has_not_begun(world: World) -> None:
    world.programs = {"for-loop-1-iteration-0/each": fail}
    assert not world.run(dag(for_loop_1=loop("body", [1, 2, 3], limit=1), last=task("for-loop-1")), {"body": dag(each=task())})
    assert world.started == ["for-loop-1-iteration-0/each"]


@pytest.mark.parametrize(("value", "branch"), [("yes", "then"), ("no", "otherwise")])
def test_branch_whose_condition_holds_gives_the_value(world: World, value: str, branch: str) -> None:
    given = {"inputs": {"parameters": {"pipelinechannel--x": {"componentInputParameter": "x"}}}}
    holds = "inputs.parameter_values['pipelinechannel--x'] == 'yes'"
    branches = dag(
        {
            "one": {
                "valueFromOneof": {"parameterSelectors": [output(f"condition-{at}", "z")["valueFromParameter"] for at in (1, 2)]}
            }
        },
        inputs=("x",),
        condition_1=task(component="then", triggerPolicy={"condition": holds}, **given),
        condition_2=task(component="otherwise", triggerPolicy={"condition": f"!({holds})"}, **given),
    )
    world.programs = {"then": lambda _given: "from then", "otherwise": lambda _given: "from otherwise"}
    groups = {
        "branches": branches,
        "then": dag({"z": output("then")}, inputs=("pipelinechannel--x",), then=task()),
        "otherwise": dag({"z": output("otherwise")}, inputs=("pipelinechannel--x",), otherwise=task()),
    }
    group = {"inputs": {"parameters": {"x": {"componentInputParameter": "x"}}}}
    root = dag(
        {"Output": output("condition-branches-1", "one")}, ("x",), condition_branches_1=task(component="branches", **group)
    )
    assert world.run(root, groups, x=value)
    assert (world.started, world.outputs) == ([branch], {"Output": f"from {branch}"})


def test_condition_without_a_value_fails_the_run(world: World) -> None:
    condition = {"triggerPolicy": {"condition": "inputs.parameter_values['x'] == 'a'"}}
    assert not world.run(dag(condition_1=task(component="then", **condition)), {"then": dag(inputs=("x",), then=task())})
    assert world.started == []
    assert "is null" in world.lines.failures[0].task.message


def test_nested_pipeline_sees_only_its_inputs_and_has_its_folder(world: World) -> None:
    passed = {"inputs": {"parameters": {"p": {"componentInputParameter": "s"}}}}
    uses = {"inputs": {"parameters": {"a": {"componentInputParameter": "p"}}}}
    inner = dag(fit=task(**uses))
    inner["inputDefinitions"] = {"parameters": {"p": {"parameterType": "STRING", "isOptional": True, "defaultValue": "default"}}}
    assert world.run(
        dag(inputs=("s",), inner=task(component="inner", **passed), other=task(component="inner")), {"inner": inner}, s="own"
    )
    assert {place: given["parameterValues"] for place, given in world.inputs.items()} == {
        "inner/fit": {"a": "own"},
        "other/fit": {"a": "default"},
    }
    hidden = dag(fit=task(inputs={"parameters": {"a": {"runtimeValue": {"constant": "{{$.inputs.parameters['s']}}!"}}}}))
    assert not world.run(dag(inputs=("s",), inner=task(component="inner")), {"inner": hidden}, s="own")
    assert "s has no value" in world.lines.failures[0].task.message


def test_value_that_the_compiler_forgets_is_waited_for(world: World) -> None:
    name = "pipelinechannel--make-Output"
    uses = {"a": {"runtimeValue": {"constant": f"<{{{{$.inputs.parameters['{name}']}}}}>"}, "isOptional": True}}
    inner = dag(use=task(inputs={"parameters": {**uses, name: {"componentInputParameter": name}}}))
    world.programs = {"make": lambda _given: "made"}
    assert world.run(dag(for_loop_1=loop("inner", [1]), make=task()), {"inner": inner})
    assert world.inputs["for-loop-1-iteration-0/use"]["parameterValues"] == {"a": "<made>"}


def test_input_from_a_task_without_that_output_fails_with_its_name(world: World) -> None:
    missing = {"inputs": {"parameters": {"a": {"taskOutputParameter": {"producerTask": "make", "outputParameterKey": "other"}}}}}
    root = dag(make=task(), use=task(**missing))
    root["dag"]["tasks"]["use"]["componentRef"]["name"] = "comp-strict"
    strict = {"executorLabel": "exec-do", "inputDefinitions": {"parameters": {"a": {"parameterType": "STRING"}}}}
    assert not world.run(root, {"strict": strict})
    assert world.lines.failures[0].task.message == "the input 'a': make.other has no value"


def test_interrupt_starts_nothing_more_and_tries_nothing_again(world: World) -> None:
    world.programs = {"first": lambda _given: world.graph.interrupted.set() or RuntimeError()}
    again = {"retryPolicy": {"maxRetryCount": 3, "backoffDuration": "3600s"}}
    assert not world.run(dag(first=task(**again), second=task(), third=task("second"), clean=task("first", **AFTER_ALL)))
    assert world.started.count("first") == 1
    assert "clean" in world.started
    assert "third" not in world.started or world.started.index("third") < world.started.index("clean")


@pytest.mark.parametrize("tasks", [{"a": task("b"), "b": task("a")}, {"a": task("nope")}])
def test_tasks_that_can_never_start_fail_the_run(world: World, tasks: dict[str, Any]) -> None:
    assert not world.run(dag(last=task(), **tasks))
    assert world.started == ["last"]
    assert {failure.task.message for failure in world.lines.failures} == {
        "it waits for itself, or for a task that does not exist"
    }


def test_error_of_a_task_is_its_failure_and_exit_handlers_run(world: World) -> None:
    def full(_given: Any) -> Any:
        raise OSError(28, "No space left on device")

    world.programs = {"one": full}
    assert not world.run(dag(one=task(), clean=task("one", **AFTER_ALL)))
    assert world.started == ["one", "clean"]
    assert world.lines.failures[0].task.message == "OSError: [Errno 28] No space left on device"


def test_output_that_is_not_finite_is_warned_of(world: World) -> None:
    world.programs = {"one": lambda _given: float("nan")}
    condition = {"triggerPolicy": {"condition": "inputs.parameter_values['x'] > 0.5"}}
    given = {"inputs": {"parameters": {"x": {"taskOutputParameter": {"producerTask": "one", "outputParameterKey": "Output"}}}}}
    then = dag(then=task())
    then["inputDefinitions"] = {"parameters": {"x": {"parameterType": "NUMBER_DOUBLE"}}}
    TEXT["parameterType"] = "NUMBER_DOUBLE"
    try:
        assert not world.run(dag(one=task(), condition_1=task("one", component="then", **condition, **given)), {"then": then})
    finally:
        TEXT["parameterType"] = "STRING"
    assert any("warning: one: the output 'Output' has a number that is not finite" in line for line in world.said)
    assert "compares x, which is nan" in world.lines.failures[0].task.message


def test_variables_and_values_of_the_run_are_filled_in(world: World) -> None:
    texts = {"a": {"runtimeValue": {"constant": "{{$.pipeline_job_name}}"}}}
    assert world.run(dag(one=task(inputs={"parameters": texts}, taskInfo={"name": "one"})))
    assert world.inputs["one"]["parameterValues"] == {"a": world.graph.folder.name}
    longer = {"a": {"runtimeValue": {"constant": "x {{$.pipeline_task_name}}"}}}
    assert world.run(dag(one=task(inputs={"parameters": longer}, taskInfo={"name": "one"})))
    assert world.inputs["one"]["parameterValues"] == {"a": "x one"}
    assert any("a server does not replace {{$.pipeline_task_name}}" in line for line in world.said)


def test_step_that_waited_for_a_place_is_left_out_after_a_failure(world: World) -> None:
    one, two = (f"for-loop-1-iteration-{at}/each" for at in range(2))
    world.programs = {one: fail, two: fail}
    world.side_by_side = 1
    assert not world.run(dag(for_loop_1=loop("body", [1, 2])), {"body": dag(each=task())})
    assert len(world.started) == 1
    assert len(world.lines.failures) == 1


def test_lines_of_the_executor_are_not_shown() -> None:
    said: list[str] = []
    lines = PrintedLines(said.append)
    for text in (
        "[KFP Executor 2026-11-30 07:49:00,123 INFO]: Got executor_input:",
        "{",
        '    "secret": 1',
        "}",
        "\x1b[31mreal\x1b[0m",
        "Traceback (most recent call last):",
        '  File "x"',
        "ValueError: bad",
    ):
        lines.prints("fit", text)
    lines.ends("fit", State.failed, {}, "")
    assert said == [
        "[fit] real",
        "[fit] Traceback (most recent call last):",
        '[fit]   File "x"',
        "[fit] ValueError: bad",
        "Task 'fit' finished with status FAILURE",
    ]
    assert lines.failures[0].task.message == "ValueError: bad"
