"""Makes a forked process look and behave like one that was just executed, but for the modules that it has imported.

Standard library only; torch and numpy are touched if they are loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from typing import Any

from trainwright.controlplane.node.supervisor.process_title import set_title, show_environment
from trainwright.controlplane.node.warm_start.command_line import CommandLine

_PR_SET_DUMPABLE, _PR_SET_NAME = 4, 15
_FIRST = 3
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_PLAIN_POPEN = subprocess.Popen


def become(command: CommandLine, env: dict[str, str], path: list[str], added: dict[str, str]) -> None:
    """Take the variables, the search path and the name of a command line, and new random numbers.

    `path` is `sys.path` as the interpreter made it, `added` the variables that it added.
    """
    close_files()
    reset_signals()
    os.environ.clear()
    os.environ.update({**env, **{name: value for name, value in added.items() if name not in env}})
    time.tzset()
    set_title(command.words)
    show_environment(env)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, os.fsencode(command.program)[:15], 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # a change of the user has reset it, which an execution undoes
    sys.executable, sys.orig_argv[:] = command.executable, command.words
    _set_search_path(command, env, path)
    subprocess.Popen = _PLAIN_POPEN  # type: ignore[misc]
    tempfile.tempdir = None
    _set_multiprocessing()
    _renew_random_numbers()


def close_files(but: Collection[int] = ()) -> None:
    """Close all files except the three streams and those of `but`."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor >= _FIRST and descriptor not in but:
            with contextlib.suppress(OSError):  # the folder that was listed is closed already
                os.close(descriptor)


def reset_signals() -> None:
    """Set the actions that Python has at its start. Signals that were ignored before stay ignored, as when a program is executed."""
    for number in signal.valid_signals():
        if signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None):
            signal.signal(number, signal.SIG_DFL)
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def search_folders(env: dict[str, str]) -> list[str]:
    """Return the folders of PYTHONPATH."""
    return [os.path.abspath(folder) for folder in env.get("PYTHONPATH", "").split(os.pathsep)] if env.get("PYTHONPATH") else []


def _set_search_path(command: CommandLine, env: dict[str, str], path: list[str]) -> None:
    first = {"text": "", "module": os.getcwd(), "script": os.path.dirname(os.path.realpath(command.main))}[command.kind]
    sys.path[:] = [first, *dict.fromkeys([*search_folders(env), *path])]
    sys.argv[:] = [{"text": "-c", "module": "-m", "script": command.main}[command.kind], *command.args]


def _set_multiprocessing() -> None:
    import multiprocessing.process
    import multiprocessing.spawn

    multiprocessing.spawn.set_executable(sys.executable)
    multiprocessing.process.current_process().authkey = os.urandom(32)
    module: Any = multiprocessing.process
    module.ORIGINAL_DIR = os.path.abspath(os.getcwd())


def _renew_random_numbers() -> None:
    """Seed as at the start of a process: torch's generator of the CPU and numpy's global one have a random seed then."""
    random.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    dynamo_config: Any = sys.modules.get("torch._dynamo.config")
    if dynamo_config is not None and "TORCH_COMPILE_DEBUG_DIR" not in os.environ:
        dynamo_config.debug_dir_root = os.path.join(os.getcwd(), "torch_compile_debug")
