"""Runs a module as `python -m` does, with files that others may read, and ends without taking the interpreter apart.

torch's gloo lets go of its last collective in a thread of its own that needs the interpreter. In an interpreter that is going
away such a thread aborts the process: a training that is done and saved exits with 134 ("terminate called without an active
exception"; torch 2.13, 15 of 40 exits right after a collective). Destroying the process group there can deadlock instead.
Pods of different users share a workspace: TRAINWRIGHT_UMASK sets the umask, and model weights follow it too.
Stands alone, without imports from the package, because it runs in the image of the training program.
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


def main() -> None:
    """Run the module named by the first argument; the process ends with the status that it asks for, 1 after an exception."""
    ended = [1]
    atexit.register(lambda: _leave(ended[0]))  # the first to be registered is the last to run
    del sys.argv[0]
    sys.path[0] = os.getcwd()  # as `python -m` has it, not the folder of this file
    try:
        if os.environ.get(UMASK):
            _share_files(os.environ[UMASK])
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        ended[0] = 0
    except SystemExit as asked:
        ended[0] = _status(asked)
    except BaseException:
        traceback.print_exc()


def _share_files(text: str) -> None:
    """Apply an octal umask, also to what safetensors writes: it creates files for their owner alone, whatever the umask."""
    try:
        mask = int(text, 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= 0o777:
        raise SystemExit(f"{UMASK}={text}: expected an octal number from 0 to 0777, such as 0002")
    os.umask(mask)
    try:
        import safetensors  # 3 ms; safetensors.torch and .numpy, imported later, take the function from here
    except ImportError:
        return
    serialize_file = safetensors.serialize_file

    def serialize_file_for_group(data: Any, filename: Any, *arguments: Any, **options: Any) -> Any:
        result = serialize_file(data, filename, *arguments, **options)
        os.chmod(filename, 0o666 & ~mask)
        return result

    module: Any = safetensors
    module.serialize_file = serialize_file_for_group


def _status(asked: SystemExit) -> int:
    """The exit status that Python gives a SystemExit: its number, 0 for none, 1 for a text, which it prints."""
    if asked.code is None:
        return 0
    if isinstance(asked.code, int):
        return asked.code & 0xFF
    print(asked.code, file=sys.stderr)
    return 1


def _leave(status: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, or the program closed it
            continue
    os._exit(status)


if __name__ == "__main__":
    main()
