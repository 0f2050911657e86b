"""Builtin trainers: typed settings that are converted to the command of a training program, for matching runtimes.

Packages add trainers with entry points of the group `trainwright.builtin_trainers`, each a class that implements `BuiltinTrainer`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from trainwright.api import names
from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, labels_of, name_of
from trainwright.api.suggest import suggest
from trainwright.jobs.request.train_request import DEFAULT_RUNTIME, TrainRequest
from trainwright.jobs.request.validation_words import words_of

GROUP = "trainwright.builtin_trainers"


class Program(NamedTuple):
    """Command and arguments; an empty command means the runtime's.

    `requires_gpu`: without a GPU it fails or is very slow. `without_gpu` says what to set to train without one, if that is possible.
    """

    command: list[str]
    args: list[str]
    requires_gpu: bool
    without_gpu: str = ""


class BuiltinTrainer(Protocol):
    """`framework` is the framework label of supported runtimes, `runtime` the default runtime, or empty.

    `is_default`: used for supported runtimes if the request specifies no other program.
    """

    name: str
    framework: str
    runtime: str
    is_default: bool

    def program(self, settings: dict[str, Any], dataset_uri: str) -> Program:
        """Convert settings to a program. Raises ValueError, or pydantic's ValidationError, naming the setting."""


class NoSuchTrainer(ValueError):
    """There is no builtin trainer of that name; the message lists the installed ones."""


@cache
def builtin_trainers() -> dict[str, BuiltinTrainer]:
    """Return the installed trainers by name. Raises TypeError for an entry point that is not a builtin trainer."""
    from importlib.metadata import entry_points  # slow to import

    found: dict[str, BuiltinTrainer] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        trainer = entry.load()()
        if missing := [name for name in ("name", "framework", "runtime", "is_default", "program") if not hasattr(trainer, name)]:
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


def trainer_for(request: TrainRequest, runtime: Obj) -> BuiltinTrainer | None:
    """Return the requested builtin trainer, else the default one for this runtime if no other program is specified, else None."""
    if request.builtin:
        return named_trainer(request.builtin)
    if request.has_program:
        return None
    supported = [trainer for trainer in builtin_trainers().values() if supports_runtime(trainer, runtime)]
    return next((trainer for trainer in supported if trainer.is_default or request.settings), None)


def supports_runtime(trainer: BuiltinTrainer, runtime: Obj) -> bool:
    """Whether a trainer is for runtimes with this framework label."""
    return labels_of(runtime).get(names.FRAMEWORK_LABEL) == trainer.framework


def program_of(trainer: BuiltinTrainer | None, request: TrainRequest, runtime: Obj) -> tuple[Program | None, list[Problem]]:
    """Return the program of a builtin trainer, and what is wrong with its settings, whatever the runtime supports."""
    if trainer is None:
        return None, [_UNUSED_SETTINGS] if request.settings and request.has_program else []
    try:
        return trainer.program(request.settings, request.dataset_uri), []
    except ValidationError as error:
        problems = [Problem(".".join(map(str, ("settings", *one["loc"]))), words_of(one)) for one in error.errors()]
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
        f"no builtin trainer supports the runtime {name_of(runtime)!r}, so settings are not used; select one with builtin, or use "
        f"command and args ({DEFAULT_RUNTIME} is supported by sft)",
    )
