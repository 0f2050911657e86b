"""Components whose tasks are not taken from the cache of Kubeflow Pipelines, unless their pipeline asks for that.

The cache compares only parameters: with a `run_id` that stays the same, a step would return the results of the first run although the
data at the same URI is other data, and nothing would train.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from kfp.dsl import PipelineTask
from kfp.dsl.pipeline_task import TaskState
from kfp.dsl.python_component import PythonComponent
from kfp.dsl.structures import ComponentSpec

_LARGEST_INTEGER = 2**53
"""Kubeflow Pipelines keeps numbers as doubles."""


class UncachedComponent(PythonComponent):  # type: ignore[misc]
    """A component whose tasks have caching off; `task.set_caching_options(True)` turns it on."""

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Return the task. Raises ValueError for an integer that would arrive as another one.

        What is given as the default is not passed on: the backend has it from the component.
        """
        for name, value in kwargs.items():
            if isinstance(value, int) and abs(value) >= _LARGEST_INTEGER:
                raise ValueError(f"{self.name}(): {name}={value}: Kubeflow Pipelines keeps integers below 2**53 only")
        task = super().__call__(*args, **{name: value for name, value in kwargs.items() if not self._is_default(name, value)})
        if task.state == TaskState.FUTURE:  # one that has run already, outside a pipeline, has no settings
            task.set_caching_options(False)
            task.component_spec = without_descriptions(task.component_spec)
        return task

    def _is_default(self, name: str, value: Any) -> bool:
        spec = self.component_spec.inputs.get(name)
        # As text, since 1, 1.0 and True are equal, inside of objects as well.
        return spec is not None and spec.default is not None and repr(spec.default) == repr(value)


def without_descriptions(spec: ComponentSpec) -> ComponentSpec:
    """Return the component without descriptions of inputs and outputs: nobody sees those of a task, and its workflow has each six
    times.
    """
    found = copy.copy(spec)
    found.inputs, found.outputs = (
        {name: replace(one, description=None) for name, one in (part or {}).items()} or None
        for part in (spec.inputs, spec.outputs)
    )
    return found
