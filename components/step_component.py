"""The components of steps: what their calls in a pipeline refuse, pass on and set, beyond those of kfp.

The cache of Kubeflow Pipelines compares only parameters: with a `run_id` that stays the same, a step would return the results of the
first run although the data at the same URI is other data, and nothing would train. So tasks are not cached unless their pipeline asks.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfp.dsl import PipelineTask, pipeline_channel
from kfp.dsl.pipeline_task import TaskState
from kfp.dsl.python_component import PythonComponent
from kfp.dsl.structures import ComponentSpec

from trainwright.components.pipeline_values import with_types
from trainwright.components.training_task import INPUT, as_training_task
from trainwright.jobs.credentials.secret_detection import reject_known_literals
from trainwright.jobs.request.invalid_settings import InvalidSettings, within
from trainwright.jobs.request.setting import Settings, check_names, paths_of, settings_of
from trainwright.jobs.request.typed_parameters import has_doubled_dollar, has_large_integer
from trainwright.steps.training.kfp_parameters import WITHOUT_RUN

DOUBLED_DOLLAR = (
    "Kubernetes makes '$$' a '$' on its way to the step; only texts inside an object or a list, without values of the run in them, "
    "and arguments of a @train_function arrive with it"
)


class StepComponent(PythonComponent):  # type: ignore[misc]
    """A component of a step, whose tasks have caching off; `task.set_caching_options(True)` turns it on.

    `settings` is the class of the settings among its parameters, if they have groups. It `needs` one of these parameters.
    """

    def __init__(self, spec: ComponentSpec, function: Any, settings: type[Settings] | None = None, needs: tuple[str, ...] = ()):
        super().__init__(spec, function)
        self._settings_class, self._needs = settings, needs

    def __call__(self, *args: Any, **kwargs: Any) -> PipelineTask:
        """Return the task. What is given as the default is not passed on: the backend has it from the component.

        Raises:
            InvalidSettings: without the run or the data that the step needs, and for settings of a group that the step would refuse.
            LiteralSecret: for a credential, which would be part of the compiled pipeline.
            TypeError: for a setting of a group in place of the group, and for a list or an object of the run inside an object, which a
                server does not carry.
            ValueError: for an integer or a text that would arrive as another one.
        """
        for name, value in kwargs.items():
            if name not in self.component_spec.inputs and (path := path_in_group(self._settings_class, name)):
                raise TypeError(f"{self.name}() has no parameter {name!r}; it is {path}")
            if isinstance(value, int) and has_large_integer(value):
                raise ValueError(f"{self.name}(): {name}={value}: Kubeflow Pipelines keeps integers below 2**53 only")
        reject_known_literals(kwargs)
        with within(f"{self.name}()", ": "):
            if self._needs and not any(kwargs.get(name) for name in self._needs):
                raise InvalidSettings(
                    [WITHOUT_RUN if self._needs[0] == WITHOUT_RUN[0] else (self._needs[0], f"required, or {self._needs[1]}")]
                )
            if self._settings_class is not None:
                check_groups(self._settings_class, kwargs)
        given = {name: with_types(value, f"{self.name}(): {name}") for name, value in kwargs.items()}
        for name, value in given.items():
            if has_doubled_dollar(value):
                raise ValueError(f"{self.name}(): {name}: {DOUBLED_DOLLAR}")
        task = super().__call__(*args, **{name: value for name, value in given.items() if not self._is_default(name, value)})
        if task.state == TaskState.FUTURE:  # one that has run already, outside a pipeline, has no settings
            task.set_caching_options(False)
            task.component_spec = without_descriptions(task.component_spec)
        return as_training_task(task) if INPUT in self.component_spec.inputs else task

    def _is_default(self, name: str, value: Any) -> bool:
        spec = (self.component_spec.inputs or {}).get(name)
        # As text, since 1, 1.0 and True are equal, inside of objects as well.
        return spec is not None and spec.default is not None and repr(spec.default) == repr(value)


def path_in_group(cls: type[Settings] | None, name: str) -> str:
    """Return the path of a setting in a group of a class; empty for any other name."""
    path = paths_of(cls).get(name, "") if cls is not None else ""
    return path if "." in path else ""


def check_groups(cls: type[Settings], given: Mapping[str, Any]) -> None:
    """Check the settings of groups that are known when a pipeline is compiled. Raises InvalidSettings."""
    check_names(cls, {name: value for name, value in given.items() if name in settings_of(cls)})
    for name, one in settings_of(cls).items():
        group = given.get(name)
        if one.of is None or not isinstance(group, Mapping):  # no group, or one that only the run knows
            continue
        with within(name):
            check_names(one.of, group)  # those of settings that only the run knows as well
            one.of.parse_some({each: value for each, value in group.items() if not is_of_run(value)})


def is_of_run(value: Any) -> bool:
    """Whether a value is or contains one that only a run knows."""
    return bool(pipeline_channel.extract_pipeline_channels_from_any(value)) or "{{$" in str(value)


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
