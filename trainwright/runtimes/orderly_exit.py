"""Runs a module like `python -m`, creates files that other users can read, and exits without interpreter teardown.

A thread of torch's gloo needs the interpreter to release its last collective. During interpreter teardown such a thread aborts
the process, so that a training that has finished and saved exits with 134 ("terminate called without an active exception";
torch 2.13, 15 of 40 exits right after a collective). Destroying the process group at that point can deadlock instead.
Pods of different users share a workspace, so TRAINWRIGHT_UMASK sets the umask, also for model weights. With `load_weights.json`
beside it, `load_weights.py` prepares the module to start from the weights of an export; `report_progress.py` completes its reports.
It imports nothing from the package, because it runs in the image of the training program.
Usage: `torchrun orderly_exit.py MODULE [ARGUMENT ...]`.
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import traceback
from typing import Any

UMASK = "TRAINWRIGHT_UMASK"
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Run the module named by the first argument. The process exits with its status, or 1 after an exception."""
    ended = [1]
    atexit.register(lambda: _leave(ended[0]))  # the first to be registered is the last to run
    del sys.argv[0]
    sys.path[0] = os.getcwd()  # like `python -m`, instead of the folder of this file
    try:
        if os.environ.get(UMASK):
            _share_files(os.environ[UMASK])
        if os.path.exists(os.path.join(_FOLDER, "load_weights.json")):
            runpy.run_path(os.path.join(_FOLDER, "load_weights.py"))["install"](os.path.join(_FOLDER, "load_weights.json"))
        if os.path.exists(os.path.join(_FOLDER, "report_progress.py")):
            runpy.run_path(os.path.join(_FOLDER, "report_progress.py"))["install"](sys.argv[0])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        ended[0] = 0
    except SystemExit as exit_request:  # a program that says how it ends
        ended[0] = _status(exit_request)
    except BaseException:
        traceback.print_exc()


def _share_files(text: str) -> None:
    """Set an octal umask, also for files of safetensors, which by default only their owner can read."""
    try:
        mask = int(text, 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= 0o777:
        raise SystemExit(f"{UMASK}={text}: expected an octal number from 0 to 0777, such as 0002")
    os.umask(mask)
    try:
        import safetensors  # takes 3 ms; safetensors.torch and .numpy, imported later, use its patched function
    except ImportError:
        return
    serialize_file = safetensors.serialize_file

    def serialize_file_for_group(data: Any, filename: Any, *arguments: Any, **options: Any) -> Any:
        result = serialize_file(data, filename, *arguments, **options)
        os.chmod(filename, 0o666 & ~mask)
        return result

    module: Any = safetensors
    module.serialize_file = serialize_file_for_group


def _status(exit_request: SystemExit) -> int:
    """Return the exit status of a SystemExit as Python does: its number, 0 for None, 1 for a text, which is printed."""
    if exit_request.code is None:
        return 0
    if isinstance(exit_request.code, int):
        return exit_request.code & 0xFF
    print(exit_request.code, file=sys.stderr)
    return 1


def _leave(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader is gone, or the program closed it
            continue
    os._exit(status)


if __name__ == "__main__":
    main()
