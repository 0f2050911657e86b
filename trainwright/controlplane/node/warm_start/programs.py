"""Runs a container's command in a process that has imported modules, as the interpreter would run it; in every doubt, executes it.

A container starts torchrun, or the launcher (runtimes/launch.py), which starts torchrun; torchrun starts ranks. The processes of these
children are forked before the program runs that will start them, and wait for their command: torchrun's agent has threads, after whose
start nothing is forked safely. Its own code runs with all that it does and prints.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import importlib.machinery
import json
import multiprocessing.process
import multiprocessing.spawn
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainwright.controlplane.node.supervisor.start_command import execute, find_command, set_title, show_environment

_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_PLAIN_TORCHRUN = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
"""The variables of a torchrun whose ranks are plain processes that start once, if the first two are numbers."""
_READ_BY_PROGRAMS = (
    *("PATH", "PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "LOCPATH", "NLSPATH"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NPY_", "NUMPY_", "NUMEXPR_", "ONEDNN_", "DNNL_"),
    *("TORCH", "PYTORCH", "PT2_", "ATEN_", "C10_", "CAFFE2_", "GLOG_", "KINETO_"),
    *("CUDA", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "XPU_"),
    *("HF_HUB_", "HF_HOME", "TRANSFORMERS_", "TOKENIZERS_", "ACCELERATE_", "PEFT_", "SAFETENSORS_", "FSDP_", "DEEPSPEED_"),
    *("TQDM_", "FSSPEC_", "RUST_", "RAYON_"),
)
"""Beginnings of variables that the interpreter, C libraries and modules read. `tqdm` and `fsspec` read all that begin so."""
_SET_BY_LAUNCHERS = ("PYTHONPATH", "TORCHELASTIC_", "TORCH_NCCL_")
"""Exceptions: torchrun sets them for each rank, or their effect is repeated here."""
_CHANGES_MODULES = re.compile(
    rb"\bpip\b|\bsys\.modules\b|\bsys\.path\b(?!\[0\] = os\.(getcwd\(\)|path\.dirname\(os\.path\.abspath\(script\)\)))"
)
"""In the text of a script: other modules may be found than those that are imported. Not so by the lines of runtimes/launch.py and
runtimes/orderly_exit.py, whose folders are searched for such modules."""


@dataclass(frozen=True)
class Preloaded:
    """What programs need to know of the process that has imported the modules.

    `path` is its `sys.path` without the folder of a script, `env` are the variables with which it was started, `added` those that the
    interpreter added, `read` the names that were read during imports, and `loaded` the top-level modules.
    """

    path: list[str]
    env: dict[str, str]
    added: dict[str, str]
    read: frozenset[str]
    loaded: frozenset[str]

    def has_other_variables(self, env: dict[str, str]) -> bool:
        """Whether a variable on which imports depend has another value than in the process that imported."""
        own, other = {**self.added, **self.env}, {**self.added, **env}
        names = [name for name in {*own, *other} if own.get(name) != other.get(name)]
        prefixed = [name for name in names if name.startswith(_READ_BY_PROGRAMS) and not name.startswith(_SET_BY_LAUNCHERS)]
        return bool(prefixed) or not self.read.isdisjoint(names)

    def has_other_modules(self, words: list[str], env: dict[str, str]) -> bool:
        """Whether a command line could find other modules than those that are imported: in its folders, or by what its scripts do."""
        scripts = [word for word in words if word.endswith(".py")]
        folders = [os.getcwd(), *(os.path.dirname(os.path.realpath(script)) for script in scripts), *_search_folders(env)]
        specs = [importlib.machinery.PathFinder.find_spec(name, folders) for name in self.loaded]
        for folder in folders:  # they may change until the program looks
            sys.path_importer_cache.pop(folder, None)
        try:
            changes = any(_CHANGES_MODULES.search(Path(script).read_bytes()) for script in scripts)
        except OSError:  # a script is not there, or the container's user cannot read it, as Python will report
            changes = True
        return changes or any(spec is not None and spec.loader is not None for spec in specs)


@dataclass(frozen=True)
class Command:
    """A command line that this process can run: the path of `python`, "-c" or a script, and the arguments after it.

    `text` is the launcher's, after "-c", and `children` the number of processes that it will start.
    """

    interpreter: str
    script: str
    args: list[str]
    text: str = ""
    children: int = 0


def run(argv: list[str], env: dict[str, str], preloaded: Preloaded) -> None:
    """Run a command to its end, like `python`. The children that are forked for it continue in this loop, with their commands."""
    while True:
        command = parse(argv, env)
        if command is None or preloaded.has_other_variables(env) or preloaded.has_other_modules(argv, env):
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            execute(find_command(argv[0], env.get("PATH", os.defpath)), argv, env)
            return
        _become(argv, command, env, preloaded)
        given = _fork_children(command)
        if given is None:
            return _run_program(command)
        argv, env = given


def parse(argv: list[str], env: dict[str, str]) -> Command | None:
    """Return the command if this process can run it: `torchrun SCRIPT`, a rank that it starts, or the launcher's text.

    The node starts no other text warm. PATH leads to this interpreter's folder, as imports depend on it.
    """
    folder = os.path.dirname(sys.executable)
    try:
        if argv[0] == "torchrun" and argv[1].endswith(".py"):
            if {name for name in env if name.startswith("PET_")} != _PLAIN_TORCHRUN or not env["PET_NNODES"].isdecimal():
                return None  # not a plain torchrun
            script = os.path.join(folder, argv[0])
            with open(script, "rb") as file:
                interpreter = os.fsdecode(file.readline().removeprefix(b"#!").strip())
            command = Command(interpreter, script, argv[1:], children=int(env["PET_NPROC_PER_NODE"]))
        elif argv[1] == "-c":
            command = Command(os.path.join(folder, argv[0]), argv[1], argv[3:], text=argv[2], children=1)
        elif argv[0] == sys.executable and argv[1] == "-u" and argv[2].endswith(".py"):
            command = Command(argv[0], argv[2], argv[3:])
        else:
            return None
        is_here = os.path.dirname(command.interpreter) == folder and os.path.samefile(command.interpreter, sys.executable)
    except (OSError, ValueError, IndexError):  # such as a file that the container's user cannot read, or `auto` ranks
        return None
    return command if is_here else None


def _search_folders(env: dict[str, str]) -> list[str]:
    return [os.path.abspath(folder) for folder in env["PYTHONPATH"].split(os.pathsep)] if env.get("PYTHONPATH") else []


def _become(argv: list[str], command: Command, env: dict[str, str], preloaded: Preloaded) -> None:
    """Make this process look and behave like one that was just executed, but for the modules that it has imported."""
    words = [command.interpreter, command.script, *command.args] if argv[0] == "torchrun" else argv
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update({**preloaded.added, **env})
    time.tzset()
    set_title(words)
    show_environment(env)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, os.fsencode(os.path.basename(argv[0]))[:15], 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # a change of the user has reset it, which an execution undoes
    sys.executable, sys.orig_argv[:], sys.argv[:] = command.interpreter, words, [command.script, *command.args]
    first = "" if command.text else os.path.dirname(os.path.realpath(command.script))
    sys.path[:] = [first, *dict.fromkeys([*_search_folders(env), *preloaded.path])]
    tempfile.tempdir = None
    multiprocessing.spawn.set_executable(sys.executable)
    multiprocessing.process.current_process().authkey = os.urandom(32)
    module: Any = multiprocessing.process
    module.ORIGINAL_DIR = os.getcwd()
    random.seed()
    sys.modules["torch"].default_generator.seed()  # as at the start of a process, and numpy's global one
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    if "TORCH_COMPILE_DEBUG_DIR" not in env:
        dynamo_config: Any = sys.modules["torch._dynamo.config"]
        dynamo_config.debug_dir_root = os.path.join(os.getcwd(), "torch_compile_debug")


def _fork_children(command: Command) -> tuple[list[str], dict[str, str]] | None:
    """Fork processes that wait for their command. In each of them, return it with its variables. Raises OSError.

    They end if this process ends or executes something else.
    """
    waiting: list[tuple[int, socket.socket]] = []
    for _ in range(command.children):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for channel in (ours, *(channel for _, channel in waiting)):
                channel.close()
            if not command.text:  # torchrun's ranks lead sessions
                os.setsid()
            theirs.send(b"r")
            with theirs, theirs.makefile("rb") as reader:
                text = reader.read()
            if not text:
                os._exit(0)
            argv, env, folder = json.loads(text)
            os.chdir(folder or os.curdir)
            return argv, env
        theirs.close()
        ours.recv(1)
        waiting.append((pid, ours))
    if waiting:
        handler: Any = sys.modules["torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"]
        subprocess.Popen = handler.Popen = _GivingPopen  # type: ignore[misc, assignment]
        _GivingPopen.waiting = waiting
    return None


class _GivingPopen(subprocess.Popen):  # type: ignore[type-arg]
    """Gives a command to a waiting process if that can run it, and starts every other one as usual."""

    waiting: ClassVar[list[tuple[int, socket.socket]]]

    def __init__(self, args: Any, **options: Any):
        is_redirected = options.get("stdout") is not None or options.get("stderr") is not None
        self._gives = bool(self.waiting) and not is_redirected and parse(list(args), options.get("env") or {}) is not None
        super().__init__(args, **options)

    def _execute_child(self, args: Any, *more: Any) -> None:
        if not self._gives:
            super()._execute_child(args, *more)  # type: ignore[misc]
            return
        _executable, _prepare, _close, _files, folder, env = more[:6]  # the launcher's preparation unblocks signals
        self.pid, channel = self.waiting.pop(0)
        self._child_created = True
        with contextlib.suppress(OSError), channel:  # it was killed, as poll will tell
            channel.sendall(json.dumps([args, env, folder]).encode())


def _run_program(command: Command) -> None:
    """Run a program by the functions of the interpreter that do so, with its messages and its exit codes."""
    main: Any = types.ModuleType("__main__")
    main.__builtins__, main.__annotations__ = builtins, {}
    sys.modules["__main__"] = main
    if command.text:
        main.__loader__ = importlib.machinery.BuiltinImporter
        failed = ctypes.pythonapi.PyRun_SimpleStringFlags(command.text.encode(), None)
    else:
        libc, path = ctypes.CDLL(None), os.fsencode(os.path.join(os.getcwd(), command.script))
        libc.fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(libc.fopen(path, b"rb"))
        failed = ctypes.pythonapi.PyRun_SimpleFileExFlags(file, path, 1, None)
    if failed and isinstance(sys.last_value, KeyboardInterrupt):  # the interpreter would end by the signal
        atexit._run_exitfuncs()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if failed:
        sys.exit(1)
