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
_STARTS_PYTHON = "_KFP_RUNTIME=true python3 "
_BECOMES_PYTHON = "exec env _KFP_RUNTIME=true python3 "
"""As in `step_command`, for the script that kfp writes for source."""
_PREPARES = f"""
from trainwright.steps.run import prepare as _prepare

_prepare({trainwright.__version__!r})
"""
"""End of a program that travels."""
_ENDS_SENTENCE = re.compile(r"(?<=[\w)\]}\"])[.:;](?:\s|$)")
_MAX_DESCRIPTION = 100


def step(function: Callable[..., Any] | None = None, *, submits: bool = False, **options: Any) -> Any:
    """Decorate a function of the image as `dsl.component` does, with the image of the components, for tasks that are not cached.

    A component that `submits` a TrainJob gets the settings of its task, and keeps the types of values inside objects and lists.
    `options` are further ones of `dsl.component`.
    """
    if function is None:
        return lambda decorated: step(decorated, submits=submits, **options)
    if IS_STEP:
        return function
    component = _component(function, submits, options)
    component.component_spec.implementation.container.command = step_command(function.__module__, trainwright.__version__)
    return component


def travelling_step(function: Callable[..., Any]) -> Any:
    """Return the component of a function that submits a TrainJob and whose source is sent to the image. It begins with its imports.

    Raises RuntimeError if kfp writes another command than it did.
    """
    component = _component(function, True, {})
    command = component.component_spec.implementation.container.command
    if not any(_STARTS_PYTHON in word for word in command):
        raise RuntimeError(f"kfp starts the program of {component.name} in an unknown way: {command[:2]}")
    command[:] = [word.replace(_STARTS_PYTHON, _BECOMES_PYTHON) for word in command]
    command[-1] += _PREPARES
    return component


def _component(function: Callable[..., Any], submits: bool, options: dict[str, Any]) -> Any:
    from trainwright.components.image import IMAGE
    from trainwright.components.pipeline_values import TypedComponent
    from trainwright.components.training_task import TASK_CONFIG
    from trainwright.components.uncached import UncachedComponent

    if submits:
        options = {**options, "task_config_passthroughs": TASK_CONFIG}
    spec = dsl.component(function, base_image=IMAGE, install_kfp_package=False, **options).component_spec
    shorten_descriptions([*(spec.inputs or {}).values(), *(spec.outputs or {}).values()])
    spec.description = spec.description and spec.description.partition("\n")[0]
    return (TypedComponent if submits else UncachedComponent)(spec, function)


def shorten_descriptions(specs: Iterable[Any]) -> None:
    """Cut the description of each input or output to one short sentence; docstrings and docs/reference have the whole ones."""
    for spec in specs:
        sentence = _ENDS_SENTENCE.split(" ".join((spec.description or "").split()), maxsplit=1)[0]
        spec.description = textwrap.shorten(sentence, _MAX_DESCRIPTION, placeholder=" …") or None
