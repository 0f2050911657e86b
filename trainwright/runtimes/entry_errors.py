"""Tells when a training program can never run: its entry point cannot be imported, or its arguments do not fit the function.

Runs in the training pod, in any image with Python 3.8 or newer: only the standard library is imported. What it notes makes the
launcher end with an exit code of its own, so that nobody starts the program again. Errors from deeper inside the program are left
alone: a retry may help.
Usage: python3 entry_errors.py SCRIPT [ARGUMENT ...]
"""

from __future__ import annotations

import builtins
import opcode
import os
import sys
import types
from typing import Any

NOTE = "TRAINWRIGHT_CANNOT_RUN"
"""The variable with the path of the file for the reason."""


def note_call(error: BaseException) -> None:
    """Note an error that the call of a function raised, in the frame that handles it, if every call would raise it."""
    frame = _frames(error)[1:2]
    if not frame and isinstance(error, TypeError):
        _note("the arguments do not fit the function", error)
    elif frame and _is_failed_import(error, frame[0]):
        _note("an import of the function failed", error)


def note_script(error: BaseException, script: str) -> None:
    """Note an error that ended a script, if every run would end with it."""
    frames = _frames_of_script(error, script)
    if frames and _is_failed_import(error, frames[0]):
        _note("an import of " + os.path.basename(script) + " failed", error)
    elif not frames and isinstance(error, (SyntaxError, FileNotFoundError)):
        _note(os.path.basename(script) + " cannot be read", error)


def run_script(script: str) -> None:
    """Run a script as `python3 SCRIPT` does, as the module `__main__` and with its own traceback.

    `sys.argv` is that of the script already.
    """

    def report(kind: Any, error: BaseException, _trace: Any) -> None:
        note_script(error, script)
        own = _frames_of_script(error, script)
        error.__traceback__ = own[0] if own else None
        sys.__excepthook__(kind, error, error.__traceback__)

    sys.excepthook = report
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    main: Any = types.ModuleType("__main__")
    main.__file__, main.__package__, main.__builtins__ = script, None, builtins
    sys.modules["__main__"] = main
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102  (the program that the user has submitted)


def _is_failed_import(error: BaseException, trace: Any) -> bool:
    """Whether an import statement of this frame failed because of the code. A library that a node lacks may be on another node."""
    is_certain = isinstance(error, (ModuleNotFoundError, SyntaxError)) or (
        isinstance(error, ImportError) and str(error).startswith("cannot import name")
    )
    return is_certain and opcode.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]].startswith("IMPORT_")


def _frames(error: BaseException) -> list[Any]:
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    return frames


def _frames_of_script(error: BaseException, script: str) -> list[Any]:
    """Return the frames from that of the script on."""
    frames = _frames(error)
    at = next((at for at, frame in enumerate(frames) if frame.tb_frame.f_code.co_filename == script), len(frames))
    return frames[at:]


def _note(what: str, error: BaseException) -> None:
    path = os.environ.get(NOTE)
    if not path:
        return
    text = f"{what}: {type(error).__name__}: {error}"
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as failed:
        sys.stderr.write(f"cannot write {path}: {failed}\n")


if __name__ == "__main__":
    del sys.argv[0]
    run_script(sys.argv[0])
