"""Benchmarks what a step of Kubeflow Pipelines costs beyond its work: wall and CPU seconds, and the imports of each component.

Every step is one that has nothing left to do: its dataset is prepared, its job has succeeded, its export exists. It runs on this
machine, against an embedded control plane in this process. The baseline is an empty component, measured in turns, in the same
run. Left out: clean_up, which does not run alone, roll_back_model, which does not run twice, and register_model and the steps of
sweeps, which need more than one run.
"""

import argparse
import ast
import contextlib
import functools
import inspect
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from kfp import compiler, dsl
from support.fast_training_cluster import running

from trainwright import components
from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.local_graph import Graph, run_graph
from trainwright.pipeline_runs.local_lines import PrintedLines
from trainwright.storage.uri import StorageUri

REPETITIONS = 7
GOAL_SECONDS, IMPORT_GOAL_SECONDS = 0.3, 1.0
CLIENT_IMPORTS = "import kubernetes.config, kubernetes.dynamic"
"""What a step imports besides when it reaches a cluster."""
RUN, SPLIT_RUN, CLAIM = "bench", "bench-split", "bench"
# As a step does it: kfp's executor is imported, then come the imports of the component's function.
IMPORTS = """
import sys, time
from kfp.dsl import executor_main
started = time.perf_counter()
exec(sys.argv[1])
print(time.perf_counter() - started)
"""


@dsl.component(base_image="example.com/none", install_kfp_package=False)
def empty() -> str:
    """Do nothing."""
    return ""


@dataclass
class Times:
    """Seconds of every repetition of a step, of its process and those that it started."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, component: Any, arguments: dict[str, Any]) -> None:
        began, used = time.perf_counter(), _cpu_of_children()
        run(component, arguments)
        self.wall.append(time.perf_counter() - began)
        self.cpu.append(_cpu_of_children() - used)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(component: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Run a step as a pipeline; returns its outputs."""
    printed: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        has_succeeded, outputs = run_graph(Graph.below(Path(root), spec_of(component), PrintedLines(printed.append)), arguments)
    assert has_succeeded, "\n".join(printed)
    return outputs


@functools.cache
def spec_of(component: Any) -> Obj:
    """The compiled pipeline of a component alone."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yaml")
        compiler.Compiler().compile(component, str(file))
        return CompiledPipeline.parse(file.read_text("utf-8"), file.name).documents[0]


@contextlib.contextmanager
def steps_with_nothing_to_do(folder: Path) -> Iterator[dict[str, dict[str, Any]]]:
    """Do the work of each step once; yields their arguments by name, while their cluster runs."""
    os.environ["TRAINWRIGHT_SHARED_FOLDERS"] = str(folder)  # with the programs of the pods
    with running(folder) as runs:
        os.environ["KUBECONFIG"] = str(folder / "home/kubeconfig")
        workspace, volume, inputs = str(runs.claim(CLAIM)), f"pvc://{CLAIM}", runs.inputs("bench")
        exports = {"export_uri": str(StorageUri.from_path(folder / "exports"))}
        of_run = {"run_id": RUN, "workspace_path": workspace}

        def done(name: str, **arguments: Any) -> dict[str, Any]:
            outputs = run(getattr(components, name), arguments)
            steps[name] = arguments
            return outputs

        steps: dict[str, dict[str, Any]] = {}
        done("start_run", workspace=volume, **of_run)
        dataset = done("initialize_dataset", dataset_uri=inputs.dataset, **of_run)["digest"]
        model = done("initialize_model", model_uri=inputs.model, **of_run)["digest"]
        training = {"runtime": "fast", "workspace": volume, "dataset_digest": dataset, "model_digest": model, **inputs.uris}
        training["adopt_finished"] = True  # each repetition is another run of the pipeline
        trained = done("train", run_id=RUN, **training)
        handle = done("submit_train_job", run_id=SPLIT_RUN, **training)["Output"]
        done("wait_train_job", trainjob=handle)
        exported = done("export_checkpoint", trainjob=trained["trainjob"], **exports, **of_run)
        export = {"checkpoint_uri": exported["uri"], "checkpoint_digest": exported["digest"]}
        evaluated = done("evaluate", runtime="fast-evaluation", workspace=volume, **export, **of_run)["evaluation"]
        done("promote_model", evaluation=evaluated, **export, **exports)
        done("read_champion", **exports)
        yield steps


def imports_of(component: Any) -> str:
    """The imports of a component's function, as a program."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(component.python_func)))
    return "\n".join(ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def import_seconds(imports: str) -> float:
    """Seconds that imports take in a new process."""
    command = [sys.executable, "-P", "-c", IMPORTS, imports]
    env = {**os.environ, "_KFP_RUNTIME": "true"}
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)


def measure_steps(repetitions: int) -> dict[str, Times]:
    """The times of each step, and of the empty one, in turns."""
    times: dict[str, Times] = {"empty": Times()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with steps_with_nothing_to_do(folder) as steps:
            spec_of(empty)  # not measured
            for _ in range(repetitions):
                times["empty"].add(empty, {})
                for step, arguments in steps.items():
                    times.setdefault(step, Times()).add(getattr(components, step), arguments)
    return times


def print_steps(times: dict[str, Times]) -> None:
    """Print medians, and what a step costs beyond the empty one."""
    baseline, met = statistics.median(times["empty"].wall), 0
    print(f"{'local step with nothing to do':30} wall s   CPU s   beyond the empty step   ratio")
    for step, measured in times.items():
        wall, cpu = statistics.median(measured.wall), statistics.median(measured.cpu)
        met += wall - baseline <= GOAL_SECONDS
        print(f"{step:30} {wall:6.2f}  {cpu:6.2f}   {wall - baseline:19.2f} s   {wall / baseline:5.2f}")
    print(f"goal: at most {GOAL_SECONDS:g} s beyond the empty step, met by {met - 1} of {len(times) - 1} steps")


def print_imports(repetitions: int) -> None:
    """Print the time that the imports of each component take, alone and with those of the Kubernetes client."""
    print(f"\n{'imports of a component':30}      s   with the Kubernetes client")
    met, found = 0, [(name, getattr(components, name)) for name in components.__all__]
    imports = {name: imports_of(each) for name, each in found if hasattr(each, "python_func")}
    for name, own in imports.items():
        alone, whole = (
            statistics.median(import_seconds(program) for _ in range(repetitions))
            for program in (own, f"{own}\n{CLIENT_IMPORTS}")
        )
        met += whole <= IMPORT_GOAL_SECONDS
        print(f"{name:30} {alone:6.2f}   {whole:6.2f}")
    print(f"goal: at most {IMPORT_GOAL_SECONDS:g} s with the client, met by {met} of {len(imports)} components")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repetitions", type=int, default=REPETITIONS)
    chosen = arguments.parse_args()
    logging.disable(logging.WARNING)
    print_steps(measure_steps(chosen.repetitions))
    print_imports(chosen.repetitions)


if __name__ == "__main__":
    main()
