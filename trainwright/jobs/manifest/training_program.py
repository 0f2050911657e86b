"""The command of the training container: a builtin trainer's, a function, packed code, or the given command. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

from trainwright.api.objects import Obj
from trainwright.jobs.code.function_arguments import times_of
from trainwright.jobs.manifest.code_patch import MOUNT
from trainwright.jobs.manifest.resolved_request import ResolvedRequest, trainer_container
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.trainers.trl import is_switched_on
from trainwright.runtimes.launcher_text import launcher_text

TORCHRUN, PYTHON = "torchrun", "python3"
_MPIRUN = ["mpirun", "--hostfile", "/etc/mpi/hostfile"]


class CommandAndArgs(NamedTuple):
    """Command and arguments of a TrainJob; empty values keep those of the runtime."""

    command: list[str]
    args: list[str]


def training_command(resolved: ResolvedRequest) -> CommandAndArgs:
    """Return the command of the training container."""
    request, runtime, code, program = resolved.request, resolved.runtime, resolved.code, resolved.program
    if request.func is not None:
        source = ["--function", request.func.name, "--source", request.func.source]
        source += ["--arguments", json.dumps(request.func_args, sort_keys=True)]
        if times := times_of(request.func, request.func_args):
            source += ["--times", json.dumps(times, sort_keys=True)]
        return _with_launcher(request, runtime, source, [_interpreter_for(runtime)])
    if code is not None:
        command = request.command if not request.command[0].endswith(".py") else [_interpreter_for(runtime), *request.command]
        return _with_launcher(request, runtime, ["--code", MOUNT, "--digest", code.digest], [*command, *request.args])
    if program is not None:
        return CommandAndArgs(program.command, program.args)
    return CommandAndArgs(request.command, request.args)


def loads_best_model(spec: Obj, runtime: Obj) -> bool:
    """Return whether the arguments of a TrainJob, or else of its runtime, tell transformers' Trainer to load the best checkpoint at
    the end. Of several such arguments the last counts.
    """
    trainer, container = spec.get("trainer") or {}, trainer_container(runtime) or {}
    words = [str(word) for part in ("command", "args") for word in trainer.get(part) or container.get(part) or ()]
    return bool(is_switched_on(words, "load_best_model_at_end"))


def _with_launcher(request: TrainRequest, runtime: Obj, source: list[str], program: list[str]) -> CommandAndArgs:
    """Return a command that starts the program with the launcher, whose source is part of the command.

    Kubernetes expands $(NAME) in commands. It is kept in the user's command and package indexes, and escaped in everything else.
    """
    packages = []
    if request.packages_to_install:
        packages = ["--packages", json.dumps(request.packages_to_install), "--indexes", json.dumps(request.pip_index_urls)]
    mpi = _MPIRUN if "mpi" in (runtime["spec"].get("mlPolicy") or {}) else []
    command = [*mpi, PYTHON, "-c", escape_expansion(launcher_text())]
    return CommandAndArgs(command, [*map(escape_expansion, source), *packages, "--", *program])


def escape_expansion(text: str) -> str:
    """Escape `$`, so that Kubernetes expands the result to this text."""
    return text.replace("$", "$$")


def _interpreter_for(runtime: Obj) -> str:
    return TORCHRUN if "torch" in (runtime["spec"].get("mlPolicy") or {}) else PYTHON
