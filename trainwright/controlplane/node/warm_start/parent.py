"""A warm parent: imports torch, transformers and peft, and forks supervisors whose containers run Python in the forked process.

Usage: parent.py SOCKET_FD REST_SECONDS ROOM, with the variables of a container. ROOM gives its children space for other command lines
and variables. It rests, imports, writes R to its socket, and serves requests as spawner.py does. It ends, without an answer, when a
file of an imported module has changed; also after some idle minutes, and with the node.
Standard library only, as programs.py: programs find no other modules loaded than those of MODULES and what these import.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Any

if __name__ == "__main__":  # the package is found where the environment has it, and the folder of this file is not searched
    del sys.path[0]

from trainwright.controlplane.node.supervisor.process_start import RunsHere
from trainwright.controlplane.node.supervisor.spawner import LONGEST_REQUEST, fork_supervisor
from trainwright.controlplane.node.warm_start.programs import Preloaded, run

MODULES = ("torch", "torch.distributed.run", "torch._dynamo", "torch.distributed.fsdp", "torch.nn.parallel")
OPTIONAL_MODULES = ("transformers.modeling_utils", "peft")
"""Not the Trainer and not TRL: they import pyarrow, which starts a thread."""
READY = b"R"
ROOM = "TRAINWRIGHT_ROOM"
"""The variable whose length is the room for others."""
_FILES = 5  # the streams, the connection to the node, and the folder in which they are counted
_IDLE_SECONDS = 900.0


def main(connection: socket.socket, rest_seconds: float) -> None:
    """Serve requests until the end, or become a container's process and run its program."""
    with open("/proc/self/environ", encoding="utf-8", errors="surrogateescape") as file:
        env = dict(entry.split("=", 1) for entry in file.read().split("\0") if entry)
    del env[ROOM], os.environ[ROOM]
    if select.select([connection], [], [], rest_seconds)[0]:  # the node has ended
        return
    preloaded = preload(env)
    if (container := _serve(connection)) is not None:
        run(container.argv, container.env, preloaded)


def preload(env: dict[str, str]) -> Preloaded:
    """Import the modules. `env` are the variables that this process was started with.

    Raises ImportError, and RuntimeError if programs that are forked from this process would differ from executed ones.
    """
    started_with, read = dict(os.environ), set()
    variables: Any = os.environ
    encode = variables.encodekey

    def record(name: str) -> Any:
        read.add(name)
        return encode(name)

    variables.encodekey = record
    for name in MODULES:
        importlib.import_module(name)
    for name in OPTIONAL_MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    variables.encodekey = encode
    for name in variables.keys() - started_with:  # such as TORCHINDUCTOR_CACHE_DIR, which is computed again when it is missing
        del variables[name]
    gc.collect()
    gc.freeze()  # so that the collections of programs do not copy shared pages
    child = os.fork()  # before which OpenBLAS ends its threads: it starts them again when a program needs them
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    if threads != 1 or files != _FILES or sys.modules["torch"].cuda.is_initialized():
        raise RuntimeError(f"the imported modules have started threads, opened files or used the GPU: {threads=} {files=}")
    loaded = frozenset({"sitecustomize", "usercustomize", *(name.partition(".")[0] for name in sys.modules)})
    added = {name: value for name, value in started_with.items() if name not in env}
    return Preloaded(sys.path[:], env, added, frozenset(read), loaded)


def states(paths: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """Return modification time, size and inode of each file that is there."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            state = os.stat(path)
            found[path] = state.st_mtime_ns, state.st_size, state.st_ino
    return found


def _serve(connection: socket.socket) -> RunsHere | None:
    """Fork a supervisor for each request, until an imported module has changed. Returns the command in a process of a container."""
    modules = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
    packages = [path for path in sys.path if path.endswith("-packages")]  # changed when one is installed or removed
    files = states(filter(None, [*modules, *packages]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    connection.settimeout(_IDLE_SECONDS)
    try:
        connection.send(READY)
        while True:
            folder, descriptors, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 1)
            if not folder or states(files) != files:
                return None  # the node has ended, or a module would be outdated
            connection.send(fork_supervisor(connection, folder, descriptors[0], runs_here=True))
    except RunsHere as container:
        return container.with_traceback(None)
    except (TimeoutError, BrokenPipeError, ConnectionResetError):  # idle, or the node has ended
        return None


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2]))
