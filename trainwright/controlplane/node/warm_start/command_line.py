"""Recognizes the command lines that a process with imported modules can run: `python SCRIPT`, `-m MODULE`, `-c TEXT`, and `torchrun`.

Standard library only. Whatever is not understood, or would find other modules than those imported, is None: it is executed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.controlplane.node.supervisor.start_command import CommandError, find_command

_PYTHONS = ("python", "python3", f"python3.{sys.version_info[1]}")
_CUSTOMIZES = frozenset({"sitecustomize", "usercustomize"})
_SHEBANG_BYTES = 256
_CHANGES_MODULES = re.compile(rb"\bsys\.path\b|\bpip\b|\bsys\.modules\b")
"""In the text of a script: other modules may be found than those that are imported."""
_OWN_SCRIPTS = ("orderly.py", "orderly_exit.py", "entry_errors.py")
"""Those of runtimes/, which run the program's script and change the search path as Python does for it."""


@dataclass(frozen=True)
class CommandLine:
    """A command line of Python. `kind` is "script", "module" or "text"; `main` its path, name or source."""

    executable: str
    """What `sys.executable` is."""
    kind: str
    main: str
    args: list[str]
    """Those after `main`."""
    words: list[str]
    """All of it, as the kernel shows it."""
    program: str
    """The name of the executed file."""

    @property
    def is_torchrun(self) -> bool:
        return self.program == "torchrun"


def parse(argv: list[str], path: str) -> CommandLine | None:
    """Return the command line, or None if it must be executed. `path` is the PATH in which the program is found."""
    try:
        file = find_command(argv[0], path)
    except CommandError:
        return None
    name = os.path.basename(file)
    if name in _PYTHONS and _is_this_python(file):
        return _python(os.path.abspath(file), argv, name)
    if name == "torchrun":
        interpreter = _interpreter_of(file)
        if interpreter is not None and _is_this_python(interpreter):
            return CommandLine(interpreter, "script", file, argv[1:], [interpreter, file, *argv[1:]], name)
    return None


def _python(executable: str, argv: list[str], name: str) -> CommandLine | None:
    words = argv[2:] if argv[1:2] == ["-u"] else argv[1:]  # all are started with PYTHONUNBUFFERED
    if words[:1] == ["-c"] and len(words) > 1:
        return CommandLine(executable, "text", words[1], words[2:], argv, name)
    if words[:1] == ["-m"] and len(words) > 1:
        return CommandLine(executable, "module", words[1], words[2:], argv, name)
    if words and words[0].endswith(".py") and not words[0].startswith("-") and os.path.isfile(words[0]):
        return CommandLine(executable, "script", words[0], words[1:], argv, name)
    return None


def _is_this_python(file: str) -> bool:
    """Whether a file is the interpreter of the environment in which this process runs."""
    if os.path.dirname(os.path.abspath(file)) != os.path.join(sys.prefix, "bin"):
        return False
    try:
        return os.path.samefile(file, sys.executable)
    except OSError:
        return False


def _interpreter_of(script: str) -> str | None:
    with open(script, "rb") as file:
        line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    word = line[2:].strip()
    return os.fsdecode(word) if line.startswith(b"#!") and word.startswith(b"/") and b" " not in word else None


def finds_other_modules(command: CommandLine, pythonpath: list[str], loaded: frozenset[str]) -> bool:
    """Whether the program could find other modules than those that are imported: in its folders, or by what it does."""
    if command.kind == "module" and command.main in sys.modules:  # it would be loaded twice
        return True
    scripts = [word for word in (command.main, *command.args) if word.endswith(".py") and os.path.isfile(word)]
    folders = {os.getcwd(), *(os.path.dirname(os.path.realpath(script)) for script in scripts), *pythonpath}
    return any(_shadows(folder, loaded) for folder in folders) or any(_changes_modules(script) for script in scripts)


def _changes_modules(script: str) -> bool:
    if os.path.basename(script) in _OWN_SCRIPTS:
        return False
    with open(script, "rb") as file:
        return _CHANGES_MODULES.search(file.read()) is not None


def _shadows(folder: str, loaded: Iterable[str]) -> bool:
    """Whether a folder has a module with the name of a loaded one, or one that runs at the start of Python."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return False
    for entry in entries:
        name, dot, _ = entry.name.partition(".")
        if name not in loaded and name not in _CUSTOMIZES:
            continue
        if dot or any(inner.startswith("__init__.") for inner in _names_in(entry.path)):
            return True
    return False


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # not a folder
        return []
