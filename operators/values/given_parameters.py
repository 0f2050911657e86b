"""Checks what a DAG gives to a task when the DAG is parsed, also to a mapped task, which Airflow makes only when it runs.

Until then a wrong name would stay unnoticed, and a literal credential would be in the serialized DAG, for everyone who reads it. The
arguments of a mapped function of `@task.trainjob` are checked when its task runs: Airflow offers no place to look at them before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.definitions.mappedoperator import OperatorPartial

from trainwright.operators.groups import check_flat_names, check_groups
from trainwright.operators.values.literal_secrets import reject_literal_secrets

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator as _Operator
else:
    _Operator = object  # Airflow would skip the other base of a sensor if this were an operator itself


class ChecksGivenParameters(_Operator):
    """An operator whose parameters are checked as soon as they are known: those of a mapped task when it is mapped."""

    groups: ClassVar[Collection[str]] = ()
    """Parameters that are groups of settings."""

    @classmethod
    def check_given(cls, given: Mapping[str, Any]) -> None:
        """Check some or all parameters, as a DAG has given them.

        Raises LiteralSecret, ValueError for a name that a group has not, TypeError for a setting of a group in place of the group.
        """
        check_flat_names(cls.groups, given)
        cls.check_values(given)

    @classmethod
    def check_values(cls, given: Mapping[str, Any]) -> None:
        """Check the values of parameters, as `__init__` of each operator does. Airflow's own parameters are not searched.

        Raises LiteralSecret, ValueError for a name that a group has not.
        """
        reject_literal_secrets({name: given[name] for name in ("func", *cls.template_fields, *cls.groups) if name in given})
        check_groups(**{name: given[name] for name in cls.groups if name in given})

    @classmethod
    def partial(cls, **given: Any) -> OperatorPartial:
        """Return the task before it is mapped, as Airflow's operators do. Raises as `check_given`, and so do its `expand` methods."""
        cls.check_given(given)
        made = super().partial(**given)
        made._expand_called = True  # or it warns that it was never mapped
        return _CheckedPartial(operator_class=made.operator_class, kwargs=made.kwargs, params=made.params)


class _CheckedPartial(OperatorPartial):
    def expand(self, **mapped: Any) -> Any:
        for name, values in mapped.items():
            for value in values if isinstance(values, list | tuple) else (values,):
                self._check({name: value})
        return super().expand(**mapped)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> Any:
        for one in kwargs if isinstance(kwargs, list | tuple) else ():
            self._check(one)
        return super().expand_kwargs(kwargs, strict=strict)

    def _check(self, given: Any) -> None:
        if isinstance(given, Mapping) and issubclass(self.operator_class, ChecksGivenParameters):
            self.operator_class.check_given(given)
