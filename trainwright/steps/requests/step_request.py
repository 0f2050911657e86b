"""The request of a step: what it is asked to do, parsed once, whether a component, an operator or a pod does it.

`make edges` writes the parameters of components and operators from the requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from trainwright.jobs.request.more_settings import with_more
from trainwright.jobs.request.setting_types import Texts
from trainwright.jobs.request.setting_values import parse_structure
from trainwright.jobs.request.validation_problems import message_of
from trainwright.text.suggest import suggest

_REQUIRED: Any = ...


Object = Annotated[dict[str, Any], BeforeValidator(parse_structure)]
Items = Annotated[list[Any], BeforeValidator(lambda value: _as_list(parse_structure(value)))]
Count = Annotated[int, Field(ge=0)]
__all__ = ["Count", "Items", "Object", "StepRequest", "StepRun", "Texts", "parameter"]


def parameter(description: str, default: Any = _REQUIRED, *, example: str = "") -> Any:
    """Declare a parameter of a step, required without a `default`."""
    return Field(default, description=description, json_schema_extra={"group": "step", "example": example})


class StepRun(NamedTuple):
    """The run that a step is part of: who runs it (`kfp` or `airflow/DAG`), its id, and the number of a mapped task or a trial."""

    owner: str
    run_id: str
    map_index: int = -1


class StepRequest(BaseModel):
    """The base of all requests."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    is_asked_again: ClassVar[bool] = False
    """Whether its values differ from call to call within one task, so that each call has a job apart."""

    @classmethod
    def step_name(cls) -> str:
        """The name of the step, as `export-checkpoint`: part of the names of its jobs."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], more: Any = None) -> Self:
        """Create a request from the parameters of a component or an operator, among others, and further ones, see `with_more`.

        None, and empty text where no text is expected, stand for the default. Raises ValueError naming the parameter.
        """
        fields = cls.model_fields
        defaults = {name: None if field.is_required() else field.get_default() for name, field in fields.items()}
        known = {name: value for name, value in parameters.items() if name in fields and value is not None}
        known = with_more(known, more, defaults)
        given = {name: value for name, value in known.items() if value != "" or fields[name].annotation is str}
        return cls.checked(given)

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> Self:
        """Create a request from these values. Raises ValueError naming the parameter, also for an unknown one."""
        for name in given:
            if name not in cls.model_fields:
                raise ValueError(f"{name[:80]}: unknown; {suggest(name, list(cls.model_fields))}")
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise ValueError(message_of(error)) from None


def _as_list(value: Any) -> Any:
    """One object is a list of it: what XCom has of a task that was mapped over one value."""
    return [value] if isinstance(value, dict) else value or []
