"""Makes a component of a function: its image, and a program that gets the signals of its container itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kfp import dsl

from trainwright.components.image import IMAGE
from trainwright.components.pipeline_values import TypedComponent
from trainwright.components.uncached import UncachedComponent

_STARTS_PYTHON = "_KFP_RUNTIME=true python3 "
_BECOMES_PYTHON = "exec env _KFP_RUNTIME=true python3 "
"""Without `exec` the container's first process is a shell, which passes no signal on: a pod that is deleted takes its whole grace
period, and the step never hears of it.
"""


_FINITE_OUTPUTS = """
from trainwright.steps.finite_outputs import install as _install

_install()
"""
"""End of each program: what kfp's launcher cannot read never gets into an output."""

TASK_CONFIG = [
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.RESOURCES, apply_to_task=True),
    dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
    dsl.TaskConfigField.KUBERNETES_AFFINITY,
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True),
    dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.KUBERNETES_VOLUMES, apply_to_task=True),
]
"""Settings of a task that are for its TrainJob. kfp refuses to compile a task with a setting that is not listed. Placement is not for
the pod that waits, and its resources are those that `training_task` sets; variables and volumes are for both: the step may need
credentials, or a CA.
"""


def step(function: Callable[..., Any] | None = None, *, submits: bool = False, **options: Any) -> Any:
    """Decorate a function as `dsl.component` does, with the image of the components, for tasks that are not cached.

    `options` are further ones of `dsl.component`.

    A component that `submits` a TrainJob gets the settings of its task, and keeps the types of values inside objects and lists.
    """
    if function is None:
        return lambda decorated: step(decorated, submits=submits, **options)
    if submits:
        options["task_config_passthroughs"] = TASK_CONFIG
    component: Any = dsl.component(function, base_image=IMAGE, install_kfp_package=False, **options)
    command = component.component_spec.implementation.container.command
    if not any(_STARTS_PYTHON in word for word in command):
        raise RuntimeError(f"kfp starts the program of {component.name} in an unknown way: {command[:2]}")
    command[:] = [word.replace(_STARTS_PYTHON, _BECOMES_PYTHON) for word in command]
    command[-1] += _FINITE_OUTPUTS
    kind = TypedComponent if submits else UncachedComponent
    return kind(component.component_spec, component.python_func)
