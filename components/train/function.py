"""The decorator that makes a component of a training function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.components.train.function_component import TrainFunction


def train_function(func: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Turn a training function into a component, or return a decorator that does. `settings` are parameters of `train`.

    The function must contain its own imports: its source is sent, nothing is pickled. In a pipeline it is called with its own
    arguments, and with parameters of `train`: `fit(steps=steps, num_nodes=2)`. Without `run_id`, that is the id of the pipeline's
    run. `func_args` is another way to pass the function's arguments.

    An argument with the name of an artifact or a group of settings of `train`, such as `model` or `data`, replaces that parameter; the
    group can then be set in the decorator only: `@train_function(data={...})`.

    Raises:
        TypeError: for settings that are not parameters of `train`, and for an argument with the name of any other parameter.
        ValueError: for a function that uses names from outside.
    """

    def component_of(decorated: Callable[..., Any]) -> TrainFunction:
        from trainwright.components.train.function_component import TrainFunction

        return TrainFunction(decorated, settings)

    return component_of if func is None else component_of(func)
