"""The base of typed settings of builtin trainers: an unknown setting is an error that names the one that was meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from trainwright.jobs.request.invalid_settings import words_of
from trainwright.text.suggest import suggest


class TrainerSettings(BaseModel):
    """Settings of which only those of the class exist."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    other_names: ClassVar[Mapping[str, str]] = {}
    """The setting for each name that people know from the trainer's own program."""
    of_other_trainers: ClassVar[Mapping[str, str]] = {}
    """Why this trainer does not have a setting that another one has."""

    @model_validator(mode="wrap")
    @classmethod
    def _suggest_settings(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Raises ValidationError, in which unknown settings have a suggestion."""
        try:
            return validate(given)
        except ValidationError as error:
            raise ValidationError.from_exception_data(
                error.title,
                [
                    InitErrorDetails(
                        type=PydanticCustomError("setting", "{message}", {"message": cls._message(line)}),
                        loc=line["loc"],
                        input=None,
                    )
                    for line in error.errors(include_url=False, include_input=False)
                ],
                hide_input=True,
            ) from None

    @classmethod
    def _message(cls, line: ErrorDetails) -> str:
        if line["type"] != "extra_forbidden" or len(line["loc"]) != 1:  # a part of the settings has given its own suggestion
            return words_of(line)
        name = str(line["loc"][0])[:80]
        if name in cls.of_other_trainers:
            return cls.of_other_trainers[name]
        near = f"did you mean {cls.other_names[name]}?" if name in cls.other_names else suggest(name, cls.model_fields)
        more = " (extra takes other arguments of the program)" if "extra" in cls.model_fields else ""
        return f"unknown setting; {near}{more}"
