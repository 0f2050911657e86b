"""Runs on this machine beside plain Python: each task of forty random pipelines gets exactly the values that it must get."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from generated_pipelines import generated, line

from trainwright.pipeline_runs import local_graph
from trainwright.pipeline_runs.local_graph import Graph, run_graph
from trainwright.pipeline_runs.local_inputs import State
from trainwright.pipeline_runs.local_lines import PrintedLines
from trainwright.pipeline_runs.local_step import source_of
from trainwright.pipeline_runs.source import compile_pipeline

_REFUSED = (4, 7, 13, 21, 23, 29, 35, 46)
"""Pipelines that kfp's compiler does not compile: it does not find the item of a loop inside a nested group."""


def spec_of(source: str, folder: Path) -> dict[str, Any]:
    from kfp import compiler

    (folder / "generated_one.py").write_text(source, "utf-8")
    found = importlib.util.spec_from_file_location("generated_one", folder / "generated_one.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    compiler.Compiler().compile(module.generated, str(folder / "generated_one.yaml"))
    return compile_pipeline(str(folder / "generated_one.yaml")).documents[0]


@pytest.mark.medium
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.wide(part="kfp")] if seed >= 14 else [])
        for seed in sorted({*range(48)} - {*_REFUSED})
    ],
)
def test_tasks_of_a_random_pipeline_get_the_values_of_plain_python(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kfp's own executor makes the outputs, in this process."""
    from kfp.dsl.executor import Executor

    source, expected, _ = generated(seed)
    seen: list[str] = []

    def run_step(container: Any, given: Any, *_: Any) -> int:
        given = json.loads(json.dumps(given))
        seen.append(line(given["inputs"]["parameterValues"]))
        names: dict[str, Any] = {}
        exec(compile(str(source_of(container)), "component", "exec", dont_inherit=True), names)
        function = names[container["args"][container["args"].index("--function_to_execute") + 1]]
        Executor(given, function).execute()
        return 0

    monkeypatch.setattr(local_graph, "run_step", run_step)
    lines: list[str] = []
    graph = Graph.below(tmp_path, spec_of(source, tmp_path), PrintedLines(lines.append))
    succeeded, _ = run_graph(graph, {})
    assert succeeded, lines
    assert sorted(seen) == expected, source


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kfp_gives_the_same_where_it_is_right(seed: int, tmp_path: Path) -> None:
    """With both runners' processes, and outputs that both write to files: no loops, quotes or values inside of objects."""
    source, _, expected = generated(seed, plain=True)
    spec = spec_of(source, tmp_path)
    assert run_graph(Graph.below(tmp_path / "ours", spec, PrintedLines()), {})[0]
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from kfp import local; from generated_one import generated\n"
        "local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root='theirs')\n"
        "generated()\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True)
    assert _outputs(tmp_path / "ours") == expected
    # kfp makes 1.0 of 1 inside objects.
    assert _outputs(tmp_path / "ours", float) == _outputs(tmp_path / "theirs", float)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 17, 30])
def test_processes_return_what_plain_python_does(seed: int, tmp_path: Path) -> None:
    source, _, expected = generated(seed)
    assert run_graph(Graph.below(tmp_path / "ours", spec_of(source, tmp_path), PrintedLines()), {})[0]
    assert _outputs(tmp_path / "ours") == expected


def _outputs(folder: Path, parse_int: type = int) -> list[str]:
    """What all tasks returned."""
    files = [json.loads(path.read_text("utf-8"), parse_int=parse_int) for path in folder.rglob("executor_output.json")]
    return sorted(line(each["parameterValues"]["Output"]) for each in files)


def test_observer_may_be_called_by_several_threads() -> None:
    said: list[str] = []
    lines = PrintedLines(said.append)
    threads = [threading.Thread(target=lambda at=at: [lines.prints(f"t{at}", str(n)) for n in range(50)]) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines.ends("t0", State.failed, {}, "")
    assert len(said) == 201
    assert lines.failures[0].task.message == "49"
