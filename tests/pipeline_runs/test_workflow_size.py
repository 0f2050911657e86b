"""The size of a run's workflow, from the compiled pipeline, as it was measured on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline_commands import Run

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.run_checks import size_warnings, workflow_bytes

ITEMS = "pipelinechannel--rates"


def pipeline(inputs: int, source: int, items: dict[str, Any] | None = None) -> CompiledPipeline:
    """A step with so many inputs and bytes of source, in a loop if there are items."""
    about = {"defaultValue": "", "description": "x" * 94, "isOptional": True, "parameterType": "STRING"}
    parameters = {f"parameter_{number:04}": about for number in range(inputs)}
    step = {"executorLabel": "exec-fit", "inputDefinitions": {"parameters": parameters}}
    command = ["sh", "-ec", "run", "source: x\n" * (source // 10)]
    fit = {"componentRef": {"name": "comp-fit"}, "inputs": {"parameters": {}}}
    root: dict[str, Any] = {"dag": {"tasks": {"fit": fit}}}
    components: dict[str, Any] = {"comp-fit": step}
    if items is not None:
        components["comp-loop"] = {"dag": {"tasks": {"fit": fit}}}
        loop = {"componentRef": {"name": "comp-loop"}, "parameterIterator": {"itemInput": "item", "items": items}}
        root["dag"]["tasks"] = {"for-loop-1": {**loop, "inputs": {"parameters": {ITEMS: {"componentInputParameter": "rates"}}}}}
        root["inputDefinitions"] = {"parameters": {"rates": {"defaultValue": [1, 2], "parameterType": "LIST"}}}
    executors = {"exec-fit": {"container": {"command": command, "args": ["--executor_input", "{{$}}"]}}}
    spec = {"pipelineInfo": {"name": "p"}, "root": root, "components": components, "deploymentSpec": {"executors": executors}}
    return CompiledPipeline(({**spec, "schemaVersion": "2.1.0"},))


@pytest.mark.parametrize(
    ("inputs", "source", "measured"), [(1, 300, (4000 + 2600, 4000 + 2600)), (73, 17500, (83_000 + 41_000, 88_000 + 49_000))]
)
def test_nodes_of_a_step_are_as_large_as_on_a_server(inputs: int, source: int, measured: tuple[int, int]) -> None:
    """A bare component, and a training whose source travelled: node of the driver and of the executor, each twice by its retries."""
    two, one = (workflow_bytes(pipeline(inputs, source, {"raw": raw})) for raw in ("[1, 2]", "[1]"))
    group = 2 * 1300  # of the iteration
    low, high = measured
    assert 0.8 * low < (two - one - group) / 2 < 1.1 * high


@pytest.mark.parametrize(
    ("items", "values", "said"),
    [
        ({"raw": str([*range(9)])}, {}, "MB of it the 9 iterations of for-loop-1; above 1.0 MB the server shows no change"),
        ({"raw": str([*range(30)])}, {}, "MB of it the 30 iterations of for-loop-1; a cluster takes 3.1 MB: the run fails"),
        ({"inputParameter": ITEMS}, {"rates": [0.1] * 30}, "the 30 iterations of for-loop-1; a cluster takes"),
        ({"inputParameter": ITEMS}, {}, ""),
        ({"inputParameter": "pipelinechannel--plan-Output"}, {}, ""),
    ],
)
def test_loop_that_cannot_fit_is_warned_of(items: dict[str, Any], values: dict[str, Any], said: str) -> None:
    warnings = size_warnings(pipeline(73, 17500, items), values)
    assert len(warnings) == bool(said)
    assert said in "".join(warnings)


def test_large_pipeline_without_loops_is_warned_of() -> None:
    (warning,) = size_warnings(pipeline(2000, 0))
    assert "; a cluster takes 3.1 MB: the run fails before its end" in warning
    assert "iterations" not in warning


@pytest.mark.medium
def test_command_warns_of_a_loop_of_trainings(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "flow.py"
    file.write_text(
        "from kfp import dsl\nfrom trainwright.components import train\n\n\n@dsl.pipeline\ndef flow():\n"
        f"    with dsl.ParallelFor({[*range(200)]}) as seed:\n        train(run_id='r', trial='', func_args={{'seed': seed}})\n",
        "utf-8",
    )
    done = run("pipeline", "compile", str(file), "-O", str(tmp_path / "flow.yaml"))
    assert "200 iterations of for-loop-2" in done.stderr
