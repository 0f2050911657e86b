"""Finds steps of a compiled pipeline that a server may take from its cache although their data has changed. Pure.

Components that were loaded from YAML cannot turn caching off for their tasks; those of the Python package do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.step_command import runner_arguments

_RUN_ID = "run_id"
_PLACEHOLDER = "{{$."


def cacheable_steps(pipeline: CompiledPipeline, values: Mapping[str, Any] = {}) -> list[str]:
    """Return a warning for each step of Trainwright whose results would be those of an earlier run with the same `run_id`.

    `values` are the parameters of a run; without them, the defaults of the pipeline count.
    """
    spec = pipeline.documents[0]
    defaults = {name: parameter.default for name, parameter in pipeline.parameters.items()}
    found = []
    for component, name, task in pipeline.tasks():
        run_id = _constant(task, component is spec["root"], {**defaults, **values})
        if run_id and task.get("cachingOptions", {}).get("enableCache") and _is_ours(pipeline, task):
            found.append(
                f"{name}: cached with the constant run_id {run_id!r}: the next run returns the results of the first, even if the data "
                "has changed. Use dsl.PIPELINE_JOB_ID_PLACEHOLDER as run_id, or task.set_caching_options(False)"
            )
    return found


def _constant(task: Obj, is_at_top: bool, values: Mapping[str, Any]) -> str:
    """Return a run id that is the same in the next run; empty if it is another, or not known."""
    given = task.get("inputs", {}).get("parameters", {}).get(_RUN_ID, {})
    if parameter := given.get("componentInputParameter", ""):
        value = values.get(parameter) if is_at_top else None
    else:
        value = given.get("runtimeValue", {}).get("constant")
    return value if isinstance(value, str) and _PLACEHOLDER not in value else ""


def _is_ours(pipeline: CompiledPipeline, task: Obj) -> bool:
    executors = pipeline.documents[0]["deploymentSpec"].get("executors", {})
    container = executors.get(pipeline.component_of(task).get("executorLabel", ""), {}).get("container", {})
    return runner_arguments(container) is not None
