"""`@task.trainjob`: a Python function of a DAG that runs in a TrainJob, on any number of nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from trainwright.operators.train_job import TrainJobOperator


class TrainJobDecoratedOperator(DecoratedOperator, TrainJobOperator):
    """Sends the function's source and calls it with the task's arguments as JSON. Its return value becomes the task's XCom.

    Arguments keep the types of XComs, and the rendered text of templates is converted by the function's annotations, also to dates
    and durations.
    """

    custom_operator_name = "@task.trainjob"
    template_fields = ("op_args", "op_kwargs", *TrainJobOperator.template_fields)

    def __init__(self, *, python_callable: Callable[..., Any], **kwargs: Any):
        super().__init__(python_callable=python_callable, func=python_callable, **kwargs)

    def _arguments_of_call(self, func_args: Any) -> Any:
        signature = inspect.signature(self.python_callable)
        named: dict[str, Any] = {}
        for name, value in signature.bind(*self.op_args, **self.op_kwargs).arguments.items():
            kind = signature.parameters[name].kind
            if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
                function = self.python_callable.__name__
                raise TypeError(
                    f"{function}: the parameter {name!r} cannot be passed by name, which a training function requires"
                )
            named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
        return named

    def _values(self) -> dict[str, Any]:
        """As of the base class, with the arguments of the call; when a DAG is parsed, they may be results of other tasks."""
        return {**super()._values(), "func_args": self._arguments_of_call(None)}

    def request(self, run: Any = None) -> Any:
        """The request with the arguments of the call. Raises TypeError if they do not match the function."""
        self.func_args = self._arguments_of_call(None)
        return super().request(run)

    def xcom_value(self, result: Any) -> Any:
        """The return value of the function."""
        return result.results


def trainjob_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Wrap a function into a task; `kwargs` are parameters of TrainJobOperator.

    `multiple_outputs` also pushes the entries of a returned dict as XComs. As in Airflow's `@task`, the default is whether the return
    annotation is a dict. Raises as `check_given` of TrainJobOperator: a mapped task is made when it runs.
    """
    TrainJobOperator.check_given({**kwargs, **({"func": python_callable} if python_callable is not None else {})})
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=TrainJobDecoratedOperator,
        **kwargs,
    )
