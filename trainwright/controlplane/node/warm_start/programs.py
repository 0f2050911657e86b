"""Runs a program in this process as the interpreter runs it, up to the messages and the exit code of its end.

Standard library only.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import importlib.machinery
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from trainwright.controlplane.node.warm_start.command_line import CommandLine

_INTERRUPTED = 128 + signal.SIGINT


class BecomeProgram(BaseException):
    """This process has been forked to run another command: caught at the bottom of the stack, by parent.py.

    `prepare` is called when signals have their default actions again.
    """

    def __init__(self, argv: list[str], env: dict[str, str], prepare: Callable[[], object] | None = None):
        super().__init__("this process runs another command")
        self.argv, self.env, self.prepare = argv, env, prepare


def run_program(command: CommandLine) -> None:
    """Run a program to its end, like `python`: returns after a success. Raises SystemExit, BecomeProgram."""
    run = {"text": _run_text, "module": _run_module, "script": _run_script}[command.kind]
    try:
        run(command.main)
    except (SystemExit, BecomeProgram):
        raise
    except BaseException as error:
        failure: Any = error
    else:
        return
    trace = failure.__traceback__
    for _ in range(2):  # this function and the one that it has called
        trace = trace.tb_next if trace is not None else None
    failure.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(failure), failure, trace
    sys.excepthook(type(failure), failure, trace)
    if isinstance(failure, KeyboardInterrupt):
        sys.exit(_interrupted())
    sys.exit(1)


def run_known_program(command: CommandLine) -> None:
    """Run the launcher or torchrun, and end this process without the teardown of the interpreter. Raises BecomeProgram.

    It takes 0.3 s, as it copies the memory that is shared with the parent. These programs hold nothing that it would write. Threads,
    functions registered with atexit and output are finished as usual.
    """
    code = 0
    try:
        run_program(command)
    except SystemExit as asked:
        code = _exit_code(asked)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader is gone
            stream.flush()
    os._exit(code)


def _exit_code(asked: SystemExit) -> int:
    if asked.code is None or isinstance(asked.code, int):
        return (asked.code or 0) & 0xFF
    print(asked.code, file=sys.stderr)
    return 1


def _run_text(text: str) -> None:
    main = _new_main()
    main.__loader__ = importlib.machinery.BuiltinImporter
    exec(compile(text, "<string>", "exec", dont_inherit=True), vars(main))  # noqa: S102  (what the container's command says)


def _run_module(name: str) -> None:
    _new_main()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what `python -m` calls


def _run_script(script: str) -> None:
    main, path = _new_main(), os.path.abspath(script)
    main.__file__, main.__cached__ = path, None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102  (what the container's command says)


def _new_main() -> Any:
    main: Any = types.ModuleType("__main__")
    main.__builtins__, main.__annotations__ = builtins, {}
    sys.modules["__main__"] = main
    return main


def _interrupted() -> int:
    """End by the signal, as the interpreter does; the first process of a container, which it does not reach, by the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return _INTERRUPTED
