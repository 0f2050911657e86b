"""Decides whether a person's command makes one world of all processes, or several that train alone and succeed. Pure.

A runtime starts a command once in each pod, once for each process (packed code under the MPI policy, any command under Flux), or in
the launcher's pod alone (other commands under the MPI policy). A launcher in the command joins all processes only in some of these
places: `_JOINS` is the rule. A command that starts several worlds is refused, and one without a launcher is warned of.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from trainwright.api.errors import Problem
from trainwright.api.objects import Obj, name_of
from trainwright.jobs.manifest.resolved_request import ResolvedRequest
from trainwright.jobs.submit.simple_commands import simple_commands

_PYTHON = "python"
_ONE_NODE = re.compile(r"0*1(:0*1)?")
_FROM_ONE_NODE = re.compile(r"0*1:.+")
_THIS_NODE = re.compile(r"(localhost|127\.[\d.]+|\[?::1\]?)(:\d*)?")


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
    **dict.fromkeys(("deepspeed", "deepspeed.pt", "ds"), "deepspeed"),
    "horovodrun": "horovodrun",
}
_MPI_PROGRAM = re.compile(r"(mpirun|mpiexec|orterun|prterun)(\.(openmpi|mpich|hydra|mpich2|lam|slurm))?")
_MODULES = {
    "torch.distributed.run": ["torchrun"],
    "torch.distributed.launch": ["torchrun"],
    "accelerate": ["accelerate"],
    "accelerate.commands.accelerate_cli": ["accelerate"],
    "accelerate.commands.launch": ["accelerate-launch"],
    "deepspeed.launcher.runner": ["deepspeed"],
    "horovod.runner.launch": ["horovodrun"],
}
_FLAGS = (
    *("--standalone", "--no_python", "--run_path", "--virtual_local_rank"),
    *("--no_local_rank", "--no_ssh", "--multi_gpu", "--use_deepspeed", "--use_fsdp"),
)
"""Options of launchers that take no value."""
_MPI_FOLDERS = ("-wdir", "--wdir", "-wd", "--wd", "--prefix")
_INTERPRETER = re.compile(r"(python|pypy)(\d(\.\d+)?)?")
_OF_MODULE = re.compile(r"-[bBdEhiIOPqRsSuvVx]*m(.*)")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_NOT_RUN = re.compile(r"(?:^|\s)#.*|\b(?:install|activate)\s[^;&|\n]*", re.MULTILINE)
_BETWEEN_WORDS = re.compile(r"""(?:[\s"'`(){}\[\],;&|$<>]|:-|(?<![\w-])(?!PET_)\w+=)+""")


class _Start(NamedTuple):
    """A launcher, or Python without one, with all words of its command: `options` are its own, `program` is what it launches."""

    launcher: str
    words: Sequence[str]
    options: Sequence[str] = ()
    program: Sequence[str] = ()
    inner: _Start | None = None
    """The launcher that this one launches, with the same program."""


def launcher_problems(resolved: ResolvedRequest) -> Iterator[Problem]:
    """Yield the problem of a command whose launcher would make several worlds in this runtime; the message has one that works."""
    start, is_certain = _wrong_start(resolved)
    if start is not None and is_certain and resolved.request.manifest is None:
        yield Problem("command", _several_worlds(start, resolved, "does not make one world of all processes"))


def launcher_warnings(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield a warning for a command whose processes train alone since it has no launcher, and for a launcher that is not refused."""
    start, is_certain = _wrong_start(resolved)
    if start is None:
        return
    field = "command" if resolved.request.manifest is None else "spec.trainer.command"
    if start.launcher != _PYTHON:
        verdict = "does not make one world of all processes" if is_certain else "may not make one world of all processes"
        yield f"{field}: {_several_worlds(start, resolved, verdict)}"
        return
    count = f"{resolved.nodes} nodes" if resolved.nodes > 1 else f"{_processes(resolved)} processes"
    place = _place(resolved)
    alone = "it runs in the launcher's pod only" if place is _Place.ONE_POD else "each node trains alone with one process"
    yield (
        f"{field}: {_quoted(start.words)} has no launcher for {count}: {alone}, unless the program joins them itself; "
        f"use {_working_command(start, place)}"
    )


def _wrong_start(resolved: ResolvedRequest) -> tuple[_Start | None, bool]:
    """Return what makes several worlds, if anything does, and whether it certainly does."""
    request, trainer = resolved.request, _trainer_of_manifest(resolved)
    command = [*map(str, trainer.get("command") or ())] if request.manifest is not None else [*request.command]
    if not command or (request.code and command[0].endswith(".py")):  # which the launcher of the runtime starts
        return None, False
    words = [*command, *map(str, trainer.get("args") or request.args)]
    starts = [start for one in simple_commands(words) if (start := _read(one.words, one.variables)) is not None]
    launchers = [start for start in starts if start.launcher != _PYTHON]
    wrong = [start for start in launchers or starts[-1:] if not _makes_one_world(start, resolved)]
    if wrong and launchers:  # another launcher may be the one of the training
        return wrong[-1], len(wrong) == len(launchers) and not _is_unsure(wrong[-1], resolved)
    if wrong or launchers:
        return next(iter(wrong), None), False
    return next((start for start in _mentioned(words) if not _makes_one_world(start, resolved)), None), False


def _several_worlds(start: _Start, resolved: ResolvedRequest, verdict: str) -> str:
    place = _place(resolved)
    return (
        f"{_quoted(start.words)} {verdict}: the runtime {name_of(resolved.runtime)!r} starts the "
        f"command {place.value}; use {_working_command(start, place)}"
    )


def _makes_one_world(start: _Start, resolved: ResolvedRequest) -> bool:
    place = _place(resolved)
    if start.inner is not None and not _joins(start.inner, _Place.POD):  # which is started for each process, or once in each pod
        return False
    if start.launcher == "accelerate" and resolved.nodes > 1 and place is not _Place.ONE_POD and not _may_have_gpus(resolved):
        return False
    if resolved.nodes == 1 and place is not _Place.PROCESS:
        return start.launcher != _PYTHON or _JOINS[_PYTHON].get(place, _NEVER) is _ALWAYS or _processes(resolved) <= 1
    return _joins(start, place)


def _joins(start: _Start, place: _Place) -> bool:
    """Whether a launcher joins several nodes."""
    options = _JOINS[start.launcher].get(place, _NEVER)
    if options is not _ALWAYS and all(_value(start, option) is None for option in options):
        return False
    if place is _Place.ONE_POD:  # with a list of the others' hosts
        return True
    counts = [_value(start, option) or "" for option in ("--nnodes", "--num_machines")]
    hosts = [_value(start, option) or "" for option in ("--rdzv_endpoint", "--master_addr", "--main_process_ip")]
    return not (
        any(_ONE_NODE.fullmatch(count) or _FROM_ONE_NODE.fullmatch(count) for count in counts)
        or any(_THIS_NODE.fullmatch(host) for host in hosts)
        or _value(start, "--standalone") is not None
    )


def _may_have_gpus(resolved: ResolvedRequest) -> bool:
    """Whether anything asks for GPUs. Without, `accelerate launch` starts one process on each node, which does not join the others."""
    asked = [
        resolved.request.resources_per_node,
        resolved.request.manifest,
        resolved.runtime["spec"],
    ]
    return "gpu" in json.dumps(asked, default=str).lower()


def _is_unsure(start: _Start, resolved: ResolvedRequest) -> bool:
    """Whether it is open how many worlds a launcher makes which is not known to make one."""
    if start.launcher == "accelerate" and _joins(start, _place(resolved)):
        return True  # on processors alone: nobody knows whether the nodes have GPUs that were not asked for
    count = _value(start.inner or start, "--nnodes") or ""
    if _FROM_ONE_NODE.fullmatch(count) and not _ONE_NODE.fullmatch(count):  # it waits for the others, but not for long
        return True
    if start.inner is None or _place(resolved) is _Place.PROCESS:
        return False
    is_argument = any("/" in word and "=" not in word and before[0] != "-" for before, word in pairwise(start.options) if before)
    return is_argument or resolved.nodes == 1  # the launcher beneath is perhaps an argument of a program, or started once


def _working_command(start: _Start, place: _Place) -> str:
    """Return the command, and the runtime if it must be another, with which all processes are in one world."""
    program = [*start.program] or ["YOUR_PROGRAM"]
    if place is _Place.PROCESS:
        return f"command {_quoted(program)}; num_nodes and num_proc_per_node set the number of its processes"
    if place is _Place.ONE_POD:
        interpreter = ["python"] if program[0].endswith(".py") else []
        return f"command {_quoted(['mpirun', '--hostfile', '/etc/mpi/hostfile', *interpreter, *program])}"
    of_mpi = f"command {_quoted(program)} with code in a runtime with the MPI policy, such as deepspeed-distributed"
    script = program[1:] if len(program) > 1 and _INTERPRETER.fullmatch(PurePosixPath(program[0]).name) else program
    is_program = start.launcher == "torchrun" and _value(start, "--no_python") is not None
    of_torch = f"command {_quoted(['torchrun', *(['--no-python', *program] if is_program else script)])}"
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


def _trainer_of_manifest(resolved: ResolvedRequest) -> Obj:
    manifest = resolved.request.manifest
    return (manifest["spec"].get("trainer") or {}) if manifest is not None else {}


def _mentioned(words: Sequence[str]) -> Iterator[_Start]:
    """Yield the launchers that a command may start in a way that is not read, as in a text of Python or behind a script."""
    text = " ".join(_NOT_RUN.sub(" ", word) for word in words)
    variables = dict(re.findall(r"\b(PET_\w+)=([\w.:]+)", text))
    tokens = [token for token in _BETWEEN_WORDS.split(text) if token]
    for at, token in enumerate(tokens):
        before, after = "".join(tokens[at - 1 : at]), tokens[at + 1 : at + 100]
        start = _read([*_MODULES.get(token.removeprefix("-m"), [token]), *after], variables)
        if start is None or start.launcher == _PYTHON:
            continue
        if before not in ("-n", "--name") and (start.program or not before.startswith("--")):  # else it is the value of an option
            yield start._replace(words=words)


def _read(words: Sequence[str], variables: Mapping[str, str | None], *, beneath: bool = False) -> _Start | None:
    """Return what a command starts, and `beneath` it no launcher; None for programs of which nothing is known."""
    program = _run_by_python(words)
    name = PurePosixPath("".join(program[:1])).name
    if name == "pip" or [*words[1:2]] in (["--version"], ["-V"]):  # which train nothing
        return None
    launcher = "mpirun" if _MPI_PROGRAM.fullmatch(name) else _PROGRAMS.get(name)
    if name == "accelerate" and program[1:2] == ["launch"]:
        launcher, program = "accelerate", program[1:]
    if launcher is None:
        is_python = name.endswith(".py") or (words and _INTERPRETER.fullmatch(PurePosixPath(words[0]).name))
        return _Start(_PYTHON, words, program=words) if is_python else None
    end, launched = _program(launcher, program)
    options = program[1:end]
    if {"-h", "--help", "--version"} & {*options}:
        return None
    if launcher == "torchrun":  # whose variables are its options; without PET_NNODES it is alone
        given = {name[4:].lower(): "1" if value is None else value for name, value in variables.items() if name[:4] == "PET_"}
        options = [*(f"--{name}={value}" for name, value in given.items() if value != "0"), *options]
    if beneath:
        return _Start(launcher, words, options, launched)
    found = (_read(one.words, one.variables, beneath=True) for one in simple_commands(launched))
    inner = next((start for start in found if start is not None and start.launcher != _PYTHON), None)
    return _Start(launcher, words, options, launched if inner is None else inner.program, inner)


def _run_by_python(words: Sequence[str]) -> Sequence[str]:
    """Return the command that is the same as a script or module that Python runs; other commands as they are."""
    at = 1
    if not words or not _INTERPRETER.fullmatch(PurePosixPath(words[0]).name):
        return words
    while at < len(words) and words[at].startswith("-"):
        if found := _OF_MODULE.fullmatch(words[at]):
            module, rest = (found[1], words[at + 1 :]) if found[1] else ("".join(words[at + 1 : at + 2]), words[at + 2 :])
            return [*_MODULES.get(module, [module]), *rest]
        if words[at].endswith("c") and not words[at].startswith("--"):  # a text
            return []
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[at:]


def _program(launcher: str, words: Sequence[str]) -> tuple[int, Sequence[str]]:
    """Return where the options of a launcher end, and what it launches; an empty program if none is seen."""
    at, of_module = 1, False
    while at < len(words):
        word, before = words[at], words[at - 1]
        name, equals, _ = word.partition("=")
        if launcher == "mpirun":  # whose options take different numbers of words
            if before not in _MPI_FOLDERS and _is_command(words[at:]):
                break
            at += 1
        elif word == "--":
            return at, words[at + 1 :]
        elif not word.startswith("-"):
            break
        elif word == "-m" or _is_option(name, "--module"):
            of_module, at = True, at + 1
        elif equals or any(_is_option(name, flag) for flag in _FLAGS):
            at += 1
        else:
            following = "".join(words[at + 1 : at + 2])
            at += 1 if following.startswith("-") or _is_python(following) else 2
    return at, [_PYTHON, "-m", *words[at:]] if of_module else words[at:]


def _is_command(words: Sequence[str]) -> bool:
    """Whether words begin with a program that is known, or with one that wraps another."""
    if "=" in words[0]:  # the value of an option
        return False
    return (
        _is_python(words[0])
        or [one.words for one in simple_commands(words)] != [[*words]]
        or _read(words, {}, beneath=True) is not None
    )


def _is_python(word: str) -> bool:
    return word.endswith(".py") or _INTERPRETER.fullmatch(PurePosixPath(word).name) is not None


def _value(start: _Start, option: str) -> str | None:
    """Return the last value that is given to an option, which may be abbreviated; None without it."""
    found = None
    for at, word in enumerate(start.options):
        name, equals, value = word.partition("=")
        if _is_option(name, option):
            found = value if equals else "".join(start.options[at + 1 : at + 2])
    return found


def _is_option(name: str, option: str) -> bool:
    """Whether a word names an option, which Python's parsers of arguments let everybody abbreviate."""
    if not option.startswith("--"):
        return name.startswith(option)
    return len(name) > 3 and option.startswith(f"--{name[2:].replace('-', '_')}") and name.startswith("--")


def _quoted(words: Sequence[str]) -> str:
    text = shlex.join(words)
    return repr(text if len(text) <= 200 else f"{text[:197]}...")
