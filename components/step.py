"""Makes a component of a function that is in the image: compiled, it is a signature and the name of the function.

In a step, the decorator leaves the function as it is, and nothing of kfp's compiler is imported.
"""

import os
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from kfp import dsl

import trainwright
from trainwright.pipeline_runs.step_command import step_command

IS_STEP = os.environ.get("_KFP_RUNTIME") == "true"
"""Whether this process runs a step: kfp's own mark, which its command sets."""
_ENDS_SENTENCE = re.compile(r"(?<=[\w)\]}\"])[.:;](?:\s|$)")
_MAX_DESCRIPTION = 100


def step(
    function: Callable[..., Any] | None = None, *, settings: Any = None, needs: tuple[str, ...] = (), submits: bool = False
) -> Any:
    """Decorate a function of the image as `dsl.component` does, with the image of the components.

    `settings` and `needs` are those of `StepComponent`. One that `submits` a TrainJob gets the settings of its task.
    """
    if function is None:  # as `@step(...)`
        return lambda decorated: step(decorated, settings=settings, needs=needs, submits=submits)
    if IS_STEP:  # a step runs the function, and imports nothing of the compiler
        return function
    from trainwright.components.image import IMAGE
    from trainwright.components.step_component import StepComponent
    from trainwright.components.training_task import TASK_CONFIG

    options = {"task_config_passthroughs": TASK_CONFIG} if submits else {}
    spec = dsl.component(function, base_image=IMAGE, install_kfp_package=False, **options).component_spec
    shorten_descriptions([*(spec.inputs or {}).values(), *(spec.outputs or {}).values()])
    spec.description = spec.description and spec.description.partition("\n")[0]
    component = StepComponent(spec, function, settings, needs)
    component.component_spec.implementation.container.command = step_command(function.__module__, trainwright.__version__)
    return component


def shorten_descriptions(specs: Iterable[Any]) -> None:
    """Cut the description of each input or output to one short sentence; docstrings and docs/reference have the whole ones."""
    for spec in specs:
        sentence = _ENDS_SENTENCE.split(" ".join((spec.description or "").split()), maxsplit=1)[0]
        spec.description = textwrap.shorten(sentence, _MAX_DESCRIPTION, placeholder=" …") or None
