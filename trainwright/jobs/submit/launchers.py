"""Decides whether a person's command makes one world of all processes, or several that train alone and succeed. Pure.

A runtime starts a command once in each pod, once for each process (packed code under the MPI policy, any command under Flux), or in
the launcher's pod alone (other commands under the MPI policy). A launcher in the command joins all processes only in some of these
places: `_JOINS` is the rule. A command that starts several worlds is refused, and one without a launcher is warned of.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from pathlib import PurePosixPath
from typing import NamedTuple

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.manifest.resolved_request import ResolvedRequest

_PYTHON = "python"
_EMPTY = {"--nnodes": ("1", "1:1"), "--num_machines": ("1",)}
"""Values with which an option joins no nodes."""


class _Place(Enum):
    """Where a runtime starts a command, and how many times."""

    TORCH_POD = "in each pod, with the variables of torchrun"
    POD = "in each pod"
    PROCESS = "for each process"
    ONE_POD = "in the launcher's pod only"


_ALWAYS, _NEVER = None, frozenset[str]()
_JOINS: dict[str, dict[_Place, frozenset[str] | None]] = {
    # A set: joins the nodes only with one of these options. For each process, every launcher would make a world of each process.
    "torchrun": {_Place.TORCH_POD: _ALWAYS, _Place.POD: frozenset({"--nnodes"})},
    "accelerate": {
        _Place.TORCH_POD: frozenset({"--num_machines", "--config_file"}),
        _Place.POD: frozenset({"--num_machines", "--config_file"}),
        _Place.ONE_POD: frozenset({"--mpirun_hostfile", "--deepspeed_hostfile", "--config_file"}),
    },
    "deepspeed": {
        _Place.TORCH_POD: frozenset({"--no_ssh"}),
        _Place.POD: frozenset({"--no_ssh"}),
        _Place.ONE_POD: frozenset({"--hostfile", "-H"}),
    },
    "horovodrun": {_Place.ONE_POD: _ALWAYS},
    "mpirun": {_Place.ONE_POD: _ALWAYS},
    _PYTHON: {_Place.POD: _ALWAYS, _Place.PROCESS: _ALWAYS},
}
_PROGRAMS = {
    "torchrun": "torchrun",
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
    "horovodrun": "horovodrun",
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"), "mpirun"),
}
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovodrun",
}
_SHELLS = ("sh", "bash", "dash", "zsh")
_WRAPPERS = ("env", "exec", "nohup", "time", "nice")
_INTERPRETER = re.compile(r"python(\d(\.\d+)?)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_WITH_VALUE = ("-W", "-X")


class _Start(NamedTuple):
    """A launcher, or Python without one, with all words of its command: `options` are its own, `program` is what it launches."""

    launcher: str
    words: Sequence[str]
    options: Sequence[str]
    program: Sequence[str]


def launcher_problems(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Yield the problem of a command whose launcher would make several worlds in this runtime; the message has one that works."""
    request, start = resolved.request, _start(resolved)
    if request.manifest is None and start is not None and start.launcher != _PYTHON and not _makes_one_world(start, resolved):
        yield Problem("command", _several_worlds(start, resolved))


def launcher_warnings(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield a warning for a command whose processes train alone since it has no launcher, and for a manifest with the wrong one."""
    start = _start(resolved)
    if start is None or _makes_one_world(start, resolved):
        return
    if start.launcher != _PYTHON:
        yield f"spec.trainer.command: {_several_worlds(start, resolved)}"
        return
    count = f"{resolved.nodes} nodes" if resolved.nodes > 1 else f"{_processes(resolved)} processes"
    place = _place(resolved)
    alone = "it runs in the launcher's pod only" if place is _Place.ONE_POD else "each node trains alone with one process"
    yield (
        f"command: {_quoted(start.words)} has no launcher for {count}: {alone}, unless the program joins them itself; "
        f"use {_working_command(start, place)}"
    )


def _several_worlds(start: _Start, resolved: ResolvedRequest) -> str:
    place = _place(resolved)
    return (
        f"{_quoted(start.words)} does not make one world of all processes: the runtime {name_of(resolved.runtime)!r} starts the "
        f"command {place.value}; use {_working_command(start, place)}"
    )


def _makes_one_world(start: _Start, resolved: ResolvedRequest) -> bool:
    place = _place(resolved)
    options = _JOINS[start.launcher].get(place, _NEVER)
    if options is _ALWAYS:  # unless its options make it start a single node
        return resolved.nodes == 1 or not (_has(start, {"--standalone"}) or _has_empty(start, "--nnodes"))
    if _has(start, options) and not any(_has_empty(start, option) for option in options):
        return True
    if place is _Place.PROCESS:
        return False
    return resolved.nodes == 1 and (start.launcher != _PYTHON or _processes(resolved) <= 1)


def _working_command(start: _Start, place: _Place) -> str:
    """Return the command, and the runtime if it must be another, with which all processes are in one world."""
    program = [*start.program] or ["YOUR_PROGRAM"]
    if place is _Place.PROCESS:
        return f"command {_quoted(program)}; num_nodes and num_proc_per_node set the number of its processes"
    if place is _Place.ONE_POD:
        return f"command {_quoted(['mpirun', '--hostfile', '/etc/mpi/hostfile', *program])}"
    of_mpi = f"command {_quoted(program)} with code in a runtime with the MPI policy, such as deepspeed-distributed"
    script = program[1:] if len(program) > 1 and _INTERPRETER.fullmatch(PurePosixPath(program[0]).name) else program
    of_torch = f"command {_quoted(['torchrun', *script])}"
    if place is _Place.TORCH_POD:
        return f"{of_torch}, or, for a program of MPI, {of_mpi}" if start.launcher in ("mpirun", "horovodrun") else of_torch
    return of_mpi if start.launcher in ("mpirun", "horovodrun") else f"{of_torch} in a runtime with the torch policy"


def _place(resolved: ResolvedRequest) -> _Place:
    policy = resolved.runtime["spec"].get("mlPolicy") or {}
    if "flux" in policy or ("mpi" in policy and resolved.request.code):
        return _Place.PROCESS
    if "mpi" in policy:
        return _Place.ONE_POD
    return _Place.TORCH_POD if "torch" in policy else _Place.POD


def _processes(resolved: ResolvedRequest) -> int:
    """Return the processes per node that somebody has set; 1 if they follow from the resources."""
    policy = resolved.runtime["spec"].get("mlPolicy") or {}
    given = (
        resolved.request.num_proc_per_node,
        _trainer_of_manifest(resolved).get("numProcPerNode"),
        *((policy.get(name) or {}).get("numProcPerNode") for name in ("torch", "mpi", "flux")),
    )
    found = next((number for number in given if number), 1)
    return int(found) if str(found).isdigit() else 1


def _start(resolved: ResolvedRequest) -> _Start | None:
    """Return what the command starts; None for the runtime's own command, a function, and programs of which nothing is known."""
    request, trainer = resolved.request, _trainer_of_manifest(resolved)
    command = [*map(str, trainer.get("command") or ())] if request.manifest is not None else [*request.command]
    if not command or (request.code and command[0].endswith(".py")):  # which the launcher of the runtime starts
        return None
    words = [*command, *map(str, trainer.get("args") or request.args)]
    found = [start for simple in _simple_commands(words) if (start := _read(simple)) is not None]
    return next((start for start in found if start.launcher != _PYTHON), found[0] if found else None)


def _trainer_of_manifest(resolved: ResolvedRequest) -> Obj:
    manifest = resolved.request.manifest
    return (manifest["spec"].get("trainer") or {}) if manifest is not None else {}


def _simple_commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the command without wrappers, and those in the text of a shell."""
    words = _unwrapped(words)
    option = next((at for at, word in enumerate(words[:-1]) if re.fullmatch(r"-[a-z]*c", word)), None)
    if not words or PurePosixPath(words[0]).name not in _SHELLS or option is None:
        yield words
        return
    lexer = shlex.shlex(words[option + 1].replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    current: list[str] = []
    try:
        for token in lexer:
            if set(token) <= set(";&|()"):
                yield _unwrapped(current)
                current = []
            else:
                current.append(token)
    except ValueError:  # a quote without its end, as in a here-document: of the rest nothing is known
        return
    yield _unwrapped(current)


def _unwrapped(words: Sequence[str]) -> list[str]:
    """Return a command without `env X=1`, `nohup` and the like before it."""
    rest = [*words]
    while rest and (_ASSIGNMENT.match(rest[0]) or PurePosixPath(rest[0]).name in _WRAPPERS):
        is_wrapper = not _ASSIGNMENT.match(rest.pop(0))
        while is_wrapper and rest and rest[0].startswith("-"):
            rest.pop(0)
    return rest


def _read(words: list[str]) -> _Start | None:
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    if name == "accelerate" and words[1:2] == ["launch"]:
        return _launched("accelerate", words, 2)
    if launcher := _PROGRAMS.get(name):
        return _launched(launcher, words, 1)
    if not _INTERPRETER.fullmatch(name):
        return _Start(_PYTHON, words, (), words) if name.endswith(".py") else None
    at = _place_of_module(words)
    launcher = _MODULES.get("".join(words[at : at + 1]), "")
    return _launched(launcher, words, at + 1) if launcher else _Start(_PYTHON, words, (), words)


def _place_of_module(words: Sequence[str]) -> int:
    """Return where the module stands that Python runs; the end for a script."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return at + 1
        at += 2 if words[at] in _WITH_VALUE else 1
    return len(words)


def _launched(launcher: str, words: Sequence[str], after: int) -> _Start:
    """Return what a launcher starts, whose options begin at `after`; an empty program if none is seen."""
    for at in range(after, len(words)):
        if words[at] in ("-m", "--module"):
            return _Start(launcher, words, words[after:at], [_PYTHON, *words[at:]])
        if words[at].endswith(".py") or _INTERPRETER.fullmatch(PurePosixPath(words[at]).name):
            return _Start(launcher, words, words[after:at], words[at:])
    return _Start(launcher, words, words[after:], ())


def _has(start: _Start, options: Iterable[str]) -> bool:
    return any(word.partition("=")[0].replace("-", "_") in {one.replace("-", "_") for one in options} for word in start.options)


def _has_empty(start: _Start, option: str) -> bool:
    """Whether an option has a value with which it joins nothing."""
    for at, word in enumerate(start.options):
        name, equals, value = word.partition("=")
        if name.replace("-", "_") == option.replace("-", "_"):
            return (value if equals else "".join(start.options[at + 1 : at + 2])) in _EMPTY.get(option, ())
    return False


def _quoted(words: Sequence[str]) -> str:
    text = shlex.join(words)
    return repr(text if len(text) <= 200 else f"{text[:197]}...")
