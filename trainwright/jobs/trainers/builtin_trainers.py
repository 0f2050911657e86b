"""Builtin trainers: typed settings that are converted to the command of a training program, for matching runtimes.

Packages add trainers with entry points of the group `trainwright.builtin_trainers`, each a class that implements `BuiltinTrainer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.jobs.request.invalid_settings import words_of
from trainwright.jobs.request.train_request import DEFAULT_RUNTIME, TrainRequest
from trainwright.text.suggest import suggest

GROUP = "trainwright.builtin_trainers"
_ATTRIBUTES = ("name", "framework", "runtime", "rows", "is_default_for", "program")


class Program(NamedTuple):
    """Command and arguments; an empty command means the runtime's.

    `requires_gpu`: without a GPU it fails or is very slow. `without_gpu` says what to set to train without one, if that is possible.
    `has_reference`: it compares the model with the base model, so that it cannot start from other weights than those.
    `start_variables`: variables of the runtime's init container that finds the checkpoint to resume from.
    """

    command: list[str]
    args: list[str]
    requires_gpu: bool
    without_gpu: str = ""
    has_reference: bool = False
    start_variables: Mapping[str, str] = MappingProxyType({})


class OwnProgram(NamedTuple):
    """What the runtime says, in place of which or beside which a builtin trainer's program runs.

    `command` is that of the training container. `prepares_rows`: the dataset is prepared by Trainwright, as `train.jsonl` and
    `test.jsonl`; otherwise its files are as they were at the source. `fetches_dataset`: a step of the runtime fetches a dataset.
    """

    command: Sequence[str] = ()
    prepares_rows: bool = False
    fetches_dataset: bool = False


class WrongField(ValueError):
    """A field of the request, not of the settings, does not fit the builtin trainer."""

    def __init__(self, field: str, message: str):
        super().__init__(message)
        self.field = field


class BuiltinTrainer(Protocol):
    """`framework` is the framework label of supported runtimes, `runtime` the default runtime, or empty.

    `rows` are the kinds of prepared rows that it learns from (see `initializers.layouts`); empty: any.
    """

    name: str
    framework: str
    runtime: str
    rows: frozenset[str]

    def is_default_for(self, own: OwnProgram) -> bool:
        """Whether it is used for a supported runtime if the request specifies no other program."""

    def program(self, settings: dict[str, Any], dataset_uri: str, own: OwnProgram) -> Program:
        """Convert settings to a program. Raises WrongField, ValueError, or pydantic's ValidationError, naming the setting."""


class TrainerSettings(BaseModel):
    """The base of typed settings: an unknown one is an error that names the one that was meant."""

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


class NoSuchTrainer(ValueError):
    """There is no builtin trainer of that name; the message lists the installed ones."""


@cache
def builtin_trainers() -> dict[str, BuiltinTrainer]:
    """Return the installed trainers by name. Raises TypeError for an entry point that is not a builtin trainer."""
    from importlib.metadata import entry_points  # slow to import

    found: dict[str, BuiltinTrainer] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        trainer = entry.load()()
        if missing := [name for name in _ATTRIBUTES if not hasattr(trainer, name)]:
            raise TypeError(
                f"entry point {entry.name} = {entry.value} of {GROUP} is not a builtin trainer: it has no {missing[0]}"
            )
        found[trainer.name] = trainer
    return found


def named_trainer(name: str) -> BuiltinTrainer:
    """Return a trainer by name. Raises NoSuchTrainer."""
    known = builtin_trainers()
    if name not in known:
        raise NoSuchTrainer(f"builtin: {name!r} is not installed; {suggest(name, known) or 'none is'}")
    return known[name]


def runtime_of(request: TrainRequest) -> str:
    """Return the name of the request's runtime: the given one, else the builtin trainer's, else the default.

    Raises NoSuchTrainer, and ValueError for a builtin trainer without a default runtime.
    """
    if not request.builtin or request.runtime:
        return request.runtime_name
    trainer = named_trainer(request.builtin)
    if not trainer.runtime:
        raise ValueError(f"runtime: the builtin trainer {trainer.name!r} has one runtime for each model; specify one")
    return trainer.runtime


def trainer_for(request: TrainRequest, runtime: Obj, own: OwnProgram) -> BuiltinTrainer | None:
    """Return the requested builtin trainer, else the default one for this runtime if no other program is specified, else None.

    Settings alone select the trainer of a runtime that only one supports.
    """
    if request.builtin:
        return named_trainer(request.builtin)
    if request.has_program:
        return None
    supported = [trainer for trainer in builtin_trainers().values() if supports_runtime(trainer, runtime)]
    default = next((trainer for trainer in supported if trainer.is_default_for(own)), None)
    return supported[0] if default is None and request.settings and len(supported) == 1 else default


def supports_runtime(trainer: BuiltinTrainer, runtime: Obj) -> bool:
    """Whether a trainer is for runtimes with this framework label."""
    return labels_of(runtime).get(names.FRAMEWORK_LABEL) == trainer.framework


def program_of(
    trainer: BuiltinTrainer | None, request: TrainRequest, runtime: Obj, own: OwnProgram
) -> tuple[Program | None, list[Problem]]:
    """Return the program of a builtin trainer, and what is wrong with its settings, whatever the runtime supports."""
    if trainer is None:
        return None, [_UNUSED_SETTINGS] if request.settings and request.has_program else []
    try:
        return trainer.program(request.settings, request.dataset_uri, own), []
    except ValidationError as error:
        problems = [Problem(".".join(map(str, ("settings", *one["loc"]))), words_of(one)) for one in error.errors()]
    except WrongField as error:
        problems = [Problem(error.field, str(error))]
    except ValueError as error:
        problems = [Problem("settings", str(error))]
    return None, problems if supports_runtime(trainer, runtime) else []


def trainer_problems(trainer: BuiltinTrainer | None, request: TrainRequest, runtime: Obj) -> list[Problem]:
    """Return why the runtime does not support the builtin trainer or any settings."""
    if trainer is None:
        return [_no_trainer_problem(runtime)] if request.settings and not request.has_program else []
    if supports_runtime(trainer, runtime):
        return []
    has = labels_of(runtime).get(names.FRAMEWORK_LABEL) or "none"
    message = (
        f"{trainer.name!r} is for runtimes with the label {names.FRAMEWORK_LABEL}={trainer.framework}; "
        f"{name_of(runtime)!r} has {has}"
    )
    return [Problem("builtin", message)]


_UNUSED_SETTINGS = Problem(
    "settings", "only builtin trainers use settings, but another field specifies the program; use args or func_args"
)


def _no_trainer_problem(runtime: Obj) -> Problem:
    return Problem(
        "settings",
        f"the runtime {name_of(runtime)!r} has no builtin trainer by default, so settings are not used; select one with builtin, or "
        f"use command and args ({DEFAULT_RUNTIME} is supported by sft)",
    )
