"""`python -m trainwright.pipeline_runs.program FOLDER`: compiles pipelines with kfp, or runs compiled ones, for `run_program`.

Reads its request from a file of the folder, and writes its result to another.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from trainwright.jobs.request.invalid_settings import message_of
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_graph import Graph, claim_mounts, run_graph
from trainwright.pipeline_runs.local_lines import PrintedLines, shown
from trainwright.pipeline_runs.local_values import BadValue
from trainwright.pipeline_runs.source import REQUEST, RESULT
from trainwright.text.foreign_texts import one_line
from trainwright.text.suggest import suggest

_SHIPPED_PACKAGE = "trainwright.pipelines"
"""Imported by name, since it lies above this package: it is one of many that a user may name."""
_LIBRARIES = ("__main__", "kfp", "trainwright")
_PYTHON = (os.path.dirname(os.__file__), "<")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
_MAX_MESSAGE = 2000
_SPEC = "\ncomponents:\n"
"""With this key, the first in the order of the alphabet, begins what kfp's compiler writes below its comments."""
_FIELD_NAME = "argument of type 'LoopArgumentVariable' is not iterable"


def main(folder: Path) -> None:
    """Carry out the request of the folder."""
    request = json.loads((folder / REQUEST).read_bytes())
    warnings.simplefilter("ignore", FutureWarning)
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "compile": lambda source: {"text": _compiled(_pipeline(source), source)},
        "list": _list,
        "run": _run,
    }
    try:
        result = commands[request.pop("command")](**request)
    except BadPipeline as error:
        result = {"error": str(error)}
    (folder / RESULT).write_text(json.dumps(result), "utf-8")


def _list() -> dict[str, Any]:
    texts, failed = {}, {}
    for name, pipeline in _shipped().items():
        try:
            texts[name] = _compiled(pipeline, name)
        except BadPipeline as error:
            failed[name] = str(error)
    return {"texts": texts, "failed": failed}


def _run(spec: dict[str, Any], platform: dict[str, Any], parameters: dict[str, Any], pipeline_root: str) -> dict[str, Any]:
    """Run a compiled pipeline on this machine."""
    lines = PrintedLines()
    graph = replace(Graph.below(Path(pipeline_root), spec, lines), mounts=claim_mounts(platform), claim_folder=_claim_folder)
    # The steps get the signal as well: those of trainings suspend their jobs. Unlike SIG_IGN, processes do not inherit a handler.
    signal.signal(signal.SIGTERM, lambda _number, _frame: graph.interrupted.set())
    succeeded, outputs = run_graph(graph, parameters)
    if succeeded:
        return {
            "state": "SUCCEEDED",
            "folder": str(graph.folder),
            "outputs": {name: shown(each) for name, each in outputs.items()},
        }
    return {"state": "FAILED", "folder": str(graph.folder), "failures": [asdict(failure) for failure in lines.failures]}


@functools.cache
def _claim_folder(claim: str) -> str:
    """Return the folder of a claim in the cluster that the steps use."""
    # Most pipelines mount nothing that is looked up, and these imports take as long as kfp's.
    from trainwright.api.errors import ApiError
    from trainwright.cluster.connect import NoCluster
    from trainwright.jobs.submit.workspace_claim import claim_folder
    from trainwright.submission import connect_for_jobs

    try:
        cluster = connect_for_jobs()
        return claim_folder(cluster, claim, cluster.default_namespace)
    except (ApiError, NoCluster) as error:
        raise BadValue(f"mount_pvc: the folder of the claim {one_line(claim)!r} is unknown: {error}") from None


def _compiled(pipeline: Any, source: str) -> str:
    from kfp import compiler

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pipeline.yaml")
        with _explained(source, "does not compile"):
            compiler.Compiler().compile(pipeline_func=pipeline, package_path=str(file))
        text = file.read_text("utf-8")
    # kfp writes defaults into comments as they are: one with a new line would end its comment.
    header, body = text[: text.rindex(_SPEC)].splitlines(), text[text.rindex(_SPEC) + 1 :]
    return "".join(f"{line}\n" for line in header if line.startswith("#")) + body


def _pipeline(source: str) -> Any:
    file, _, function = (source, "", "") if source.endswith(".py") else source.rpartition(":")
    if not file:
        return _named(_shipped(), source.replace("-", "_"), f"{source}: no such pipeline")
    if file.endswith(".py"):
        found = _pipelines_in(_module_of_file(Path(file)))
    else:
        sys.path.append(str(Path.cwd()))  # behind everything that is installed
        with _explained(file, "cannot be imported"):
            found = _pipelines_in(importlib.import_module(file))
    if function:
        return _named(found, function, f"{file}: {function} is not a pipeline of it")
    if len(found) != 1:
        names = f": name one, as {file}:{min(found)}; it has {', '.join(sorted(found))}" if found else ""
        raise BadPipeline(f"{file}: has {len(found) or 'no'} functions with @dsl.pipeline{names}")
    return next(iter(found.values()))


def _named(pipelines: dict[str, Any], name: str, problem: str) -> Any:
    if name not in pipelines:
        raise BadPipeline(f"{problem} ({suggest(name, pipelines) or 'it has none'})")
    return pipelines[name]


def _shipped() -> dict[str, Any]:
    with _explained(_SHIPPED_PACKAGE, "cannot be imported"):
        return _pipelines_in(importlib.import_module(_SHIPPED_PACKAGE))


def _module_of_file(file: Path) -> ModuleType:
    """Import a file as Python starts it: with its folder in the path."""
    sys.path.insert(0, str(file.resolve().parent))
    with _explained(str(file), "cannot be imported"):
        name = file.stem if file.stem not in sys.modules else "pipeline_file"  # a file may have the name of a module in use
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise BadPipeline(f"{file}: not a file that Python imports")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module


def _pipelines_in(module: ModuleType) -> dict[str, Any]:
    from kfp.dsl.graph_component import GraphComponent

    return {name: value for name, value in vars(module).items() if isinstance(value, GraphComponent)}


@contextlib.contextmanager
def _explained(source: str, what: str) -> Iterator[None]:
    """Say in one line what failed in the code of a pipeline, and in which line of it."""
    try:
        yield
    except BadPipeline:
        raise
    except (Exception, SystemExit) as error:
        hint = "; kfp cannot have a field 'name' in an item of a loop: give it another name" if _FIELD_NAME in str(error) else ""
        raise BadPipeline(f"{source}: {what}: {_text(error)}{hint}{_place(error, source)}") from error


def _place(error: BaseException, source: str) -> str:
    """Return the innermost line of the user's code: of the package that was named, or of modules that are not installed."""
    trace, place = error.__traceback__, ""
    named = source.partition(":")[0].partition(".")[0]
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package == named or not (package in _LIBRARIES or file.startswith(_PYTHON) or _INSTALLED.search(file)):
            place = f" ({os.path.basename(file)}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return place


def _text(error: BaseException) -> str:
    message = message_of(error) if isinstance(error, Exception) else str(error)
    return f"{type(error).__name__}: {one_line(message)[:_MAX_MESSAGE]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
