"""What the training container runs for a request: a builtin trainer's command, a function, packed code, or what is given. Pure."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import NamedTuple

from trainwright.api.objects import Obj
from trainwright.jobs.request.builtin_trainers import program_of
from trainwright.jobs.request.code_package import PackedCode
from trainwright.jobs.request.code_patch import MOUNT
from trainwright.jobs.request.train_request import TrainRequest

TORCHRUN, PYTHON = "torchrun", "python3"
_MPIRUN = ["mpirun", "--hostfile", "/etc/mpi/hostfile"]


class Words(NamedTuple):
    """Command and arguments as a TrainJob has them; an empty one leaves the runtime's."""

    command: list[str]
    args: list[str]


def training_words(request: TrainRequest, runtime: Obj, code: PackedCode | None) -> Words:
    """Raises ValueError for settings that no builtin trainer takes."""
    if request.func is not None:
        source = ["--function", request.func.name, "--source", request.func.source]
        source += ["--arguments", json.dumps(request.func_args, sort_keys=True)]
        return _launched(request, runtime, source, [_program_for(runtime)])
    if code is not None:
        command = request.command if not request.command[0].endswith(".py") else [_program_for(runtime), *request.command]
        return _launched(request, runtime, ["--code", MOUNT, "--digest", code.digest], [*command, *request.args])
    program = program_of(request, runtime)
    if program is not None:
        return Words(program.command, program.args)
    return Words(request.command, request.args)


def _launched(request: TrainRequest, runtime: Obj, source: list[str], program: list[str]) -> Words:
    """Through the launcher, whose text travels with the job.

    Kubernetes expands $(NAME) in commands: in the command of code and in indexes, as in any command, and nowhere else.
    """
    packages = []
    if request.packages_to_install:
        packages = ["--packages", json.dumps(request.packages_to_install), "--indexes", json.dumps(request.pip_index_urls)]
    mpi = _MPIRUN if "mpi" in (runtime["spec"].get("mlPolicy") or {}) else []
    command = [*mpi, PYTHON, "-c", as_it_is(_launcher())]
    return Words(command, [*map(as_it_is, source), *packages, "--", *program])


def as_it_is(text: str) -> str:
    """A text that Kubernetes expands to this one."""
    return text.replace("$", "$$")


def _program_for(runtime: Obj) -> str:
    return TORCHRUN if "torch" in (runtime["spec"].get("mlPolicy") or {}) else PYTHON


@cache
def _launcher() -> str:
    return resources.files("trainwright.runtimes").joinpath("launch.py").read_text("utf-8")
