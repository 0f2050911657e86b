"""A component from a training function, which runs in a TrainJob on any number of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from trainwright.components.train_component.component import train


def train_function(**settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that turns a training function into a component. `settings` are parameters of `train`.

    The function must contain its own imports: its source is sent, nothing is pickled. In a pipeline it is called like `train`,
    with `run_id`, its arguments as `func_args`, and any other parameter of `train`. Raises ValueError for a function that uses
    names from outside.
    """

    def component_of(func: Callable[..., Any]) -> Callable[..., Any]:
        from trainwright.jobs.request.function_source import source_of

        named = source_of(func)
        assert named is not None
        made = partial(train, func=named.source, **settings)
        made.__doc__ = func.__doc__
        return made

    return component_of
