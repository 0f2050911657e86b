"""`python launch.py PROGRAM FOLDER`: calls `main(request)` of a program's file, and writes what it returns to the folder.

A program refuses its input with an exception that has a true `is_bad_input`. One with a true `is_expected` says all in its message:
of others the trace is printed. When the process that waits for the result is killed,
standard input closes, and the group of this process ends too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

REQUEST, RESULT = "request.json", "result.json"
_MAX_MESSAGE = 4000


def main(program: Path, folder: Path) -> int:
    """Run a program with the request in the folder. Returns the exit status."""
    _end_with_parent(folder)
    request = json.loads((folder / REQUEST).read_bytes())
    (folder / REQUEST).unlink()  # it may name an address with a password
    result: dict[str, Any]
    try:
        result = {"result": _loaded(program).main(request)}
    except Exception as error:
        refused = bool(getattr(error, "is_bad_input", False))
        expected = refused or bool(getattr(error, "is_expected", False))
        if not expected:
            traceback.print_exc()
        text = str(error) if expected else f"{type(error).__name__}: {error}"
        result = {"error": {"message": text[:_MAX_MESSAGE], "bad_input": refused, "expected": expected}}
    sys.stdout.flush()
    temporary = folder / f".{RESULT}"
    temporary.write_text(json.dumps(result), "utf-8")
    os.replace(temporary, folder / RESULT)
    return 0


def _loaded(program: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tool_program", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _end_with_parent(folder: Path) -> None:
    """Watch the pipe at standard input, which others must not read: a prompt would wait for ever."""
    watched = os.dup(0)
    os.set_inheritable(watched, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_watch, args=(watched, folder), name="parent-watch", daemon=True).start()


def _watch(descriptor: int, folder: Path) -> None:
    while os.read(descriptor, 4096):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(os.getpgid(0), signal.SIGTERM)
    threading.Event().wait(5)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
