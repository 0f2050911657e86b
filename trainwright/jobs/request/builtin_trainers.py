"""Builtin trainers: a few typed settings that become the command of a training program, for runtimes made for it.

A package adds its own by an entry point of the group `trainwright.builtin_trainers`, which names a class with the attributes of
`BuiltinTrainer`.
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

GROUP = "trainwright.builtin_trainers"


class Program(NamedTuple):
    """What runs: an empty command leaves the runtime's own. `requires_gpu`: without one it would fail, or be very slow."""

    command: list[str]
    args: list[str]
    requires_gpu: bool


class BuiltinTrainer(Protocol):
    """`framework` is the label of the runtimes that it is for; `runtime` the one that is taken where none is named, or empty.

    `is_default`: it is chosen for such a runtime where nothing else says what runs.
    """

    name: str
    framework: str
    runtime: str
    is_default: bool

    def program(self, settings: dict[str, Any], dataset_uri: str) -> Program:
        """From settings to a program. Raises ValueError (pydantic's among them) naming the setting."""


class NoSuchTrainer(ValueError):
    """No builtin trainer has that name; the message lists those that are installed."""


@cache
def builtin_trainers() -> dict[str, BuiltinTrainer]:
    """By name. Raises TypeError for an entry point that is no builtin trainer."""
    from importlib.metadata import entry_points  # slow to import

    found: dict[str, BuiltinTrainer] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        trainer = entry.load()()
        if missing := [name for name in ("name", "framework", "runtime", "is_default", "program") if not hasattr(trainer, name)]:
            raise TypeError(f"entry point {entry.name} = {entry.value} of {GROUP} is no builtin trainer: it has no {missing[0]}")
        found[trainer.name] = trainer
    return found


def named_trainer(name: str) -> BuiltinTrainer:
    """Raises NoSuchTrainer."""
    known = builtin_trainers()
    if name not in known:
        raise NoSuchTrainer(f"builtin: {name!r} is not installed; {suggest(name, known) or 'none is'}")
    return known[name]


def runtime_of(request: TrainRequest) -> str:
    """The runtime that a request means: the one it names, else its builtin trainer's, else the default of what runs.

    Raises NoSuchTrainer, and ValueError for a builtin trainer that needs its runtime named.
    """
    if not request.builtin or request.runtime:
        return request.runtime_name
    trainer = named_trainer(request.builtin)
    if not trainer.runtime:
        raise ValueError(f"runtime: the builtin trainer {trainer.name!r} has one runtime for each model; name one")
    return trainer.runtime


def trainer_for(request: TrainRequest, runtime: Obj) -> BuiltinTrainer | None:
    """The builtin trainer that is named, or the one for this runtime where nothing else says what runs; None for none."""
    if request.builtin:
        return named_trainer(request.builtin)
    if request.says_what_runs:
        return None
    fitting = [trainer for trainer in builtin_trainers().values() if is_for(trainer, runtime)]
    return next((trainer for trainer in fitting if trainer.is_default or request.settings), None)


def is_for(trainer: BuiltinTrainer, runtime: Obj) -> bool:
    return labels_of(runtime).get(names.FRAMEWORK_LABEL) == trainer.framework


def program_of(request: TrainRequest, runtime: Obj) -> Program | None:
    """What the builtin trainer makes of the request's settings; None where none is chosen. Raises ValueError."""
    trainer = trainer_for(request, runtime)
    if trainer is None:
        return None
    return trainer.program(request.settings, request.dataset_uri)


def trainer_problems(request: TrainRequest, runtime: Obj) -> list[Problem]:
    """Why a runtime and a builtin trainer, or settings, do not go together."""
    trainer = trainer_for(request, runtime)
    if trainer is None:
        return [_idle_settings(request, runtime)] if request.settings else []
    if not is_for(trainer, runtime):
        has = labels_of(runtime).get(names.FRAMEWORK_LABEL) or "none"
        message = (
            f"{trainer.name!r} is for runtimes with the label {names.FRAMEWORK_LABEL}={trainer.framework}; "
            f"{name_of(runtime)!r} has {has}"
        )
        return [Problem("builtin", message)]
    try:
        trainer.program(request.settings, request.dataset_uri)
    except ValidationError as error:
        return [Problem(".".join(map(str, ("settings", *one["loc"]))), str(one["msg"])) for one in error.errors()]
    except ValueError as error:
        return [Problem("settings", str(error))]
    return []


def _idle_settings(request: TrainRequest, runtime: Obj) -> Problem:
    if request.says_what_runs:
        return Problem(
            "settings", "only a builtin trainer takes settings, and another field says what runs; use args or func_args"
        )
    return Problem(
        "settings",
        f"no builtin trainer is for the runtime {name_of(runtime)!r}, so nothing takes settings; name one with builtin, or use "
        f"command and args ({DEFAULT_RUNTIME} is for sft)",
    )
