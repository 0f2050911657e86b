"""A component from a training function: written once, run in a TrainJob on any number of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from trainwright.components.train_component.component import train


def train_function(**settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that makes a component of a training function; `settings` are parameters of `train`.

    The function brings its own imports: its source is sent, nothing is pickled. In a pipeline it is called as `train` is, with
    `run_id`, its arguments as `func_args`, and anything else that `train` takes. Raises ValueError for a function that uses
    what is outside of it.
    """

    def component_of(func: Callable[..., Any]) -> Callable[..., Any]:
        from trainwright.jobs.function_source import source_of

        named = source_of(func)
        assert named is not None
        made = partial(train, func=named.source, **settings)
        made.__doc__ = func.__doc__
        return made

    return component_of
