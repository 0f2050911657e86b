"""Processes for torchrun's ranks, forked before its agent runs: the agent has threads, after whose start nothing is forked safely.

Standard library only. torchrun's own agent runs with all that it does and prints; only its start of a rank's process, of the same
interpreter, is replaced: one of the forked processes takes the rank's command and variables.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

from trainwright.controlplane.node.warm_start.fresh_process import close_files
from trainwright.controlplane.node.warm_start.programs import BecomeProgram

_UNDERSTOOD = {
    "rdzv_backend": "static",
    "rdzv_endpoint": "",
    "rdzv_conf": "",
    "standalone": False,
    "max_restarts": 0,
    "no_python": False,
    "run_path": False,
    "log_dir": None,
    "redirects": "0",
    "tee": "0",
    "local_ranks_filter": "",
    "duplicate_stdout_filters": [],
    "duplicate_stderr_filters": [],
    "logs_specs": None,
    "numa_binding": None,
    "virtual_local_rank": False,
    "event_log_handler": "null",
}
"""The values of torchrun's options with which its ranks are plain processes that start once."""
_FREE = {
    *("nnodes", "nproc_per_node", "node_rank", "master_addr", "master_port", "rdzv_id", "role", "module", "monitor_interval"),
    *("local_addr", "signals_to_handle", "shutdown_timeout", "training_script", "training_script_args", "start_method"),
}
MOST_RANKS = 64


def ranks_of(args: list[str]) -> int | None:
    """Return how many ranks torchrun starts with these arguments and the variables of this process; None if not plainly so."""
    import torch
    from torch.distributed import run

    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            options = vars(run.parse_args(args))
    except (SystemExit, ValueError):
        return None
    if {*options} - {*_UNDERSTOOD} - _FREE or any(options.get(name, value) != value for name, value in _UNDERSTOOD.items()):
        return None
    if options["master_port"] is None or not options["nnodes"].isdecimal() or "PYTHON_EXEC" in os.environ:
        return None
    count = options["nproc_per_node"]
    if not count.isdecimal():
        if count not in ("auto", "cpu") or (count == "auto" and torch.backends.cuda.is_built()):
            return None
        try:
            count = str(run.determine_local_world_size(count))
        except ValueError:
            return None
    return int(count) if 0 < int(count) <= MOST_RANKS else None


def serve_ranks(count: int) -> None:
    """Fork the processes, and have torchrun's agent start its ranks in them. In each of them, raises BecomeProgram for its rank.

    Raises OSError if there is no room for them; those that were forked end when this process executes something else.
    """
    from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

    waiting = [_fork() for _ in range(count)]
    plain = subprocess_handler.SubprocessHandler._popen

    def popen(self: Any, args: tuple[str, ...], env: dict[str, str]) -> subprocess.Popen[bytes]:
        if not waiting or self._stdout or self._stderr:
            return plain(self, args, env)
        return _Rank(waiting.pop(0), [str(word) for word in args], env)

    subprocess_handler.SubprocessHandler._popen = popen  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Waiting:
    pid: int
    channel: int


class _Rank(subprocess.Popen):  # type: ignore[type-arg]
    """A rank's process, which exists already."""

    def __init__(self, process: _Waiting, args: list[str], env: dict[str, str]):
        self._waiting = process
        super().__init__(args, env=env)

    def _execute_child(
        self, args: list[str], _executable: object, _preexec: object, _close: object, _fds: object, *more: Any
    ) -> None:
        env = more[1]
        with contextlib.suppress(BrokenPipeError), open(self._waiting.channel, "wb") as channel:  # killed, as poll will tell
            channel.write(json.dumps([args, env]).encode())
        self.pid, self._child_created = self._waiting.pid, True


def _fork() -> _Waiting:
    """Fork a process that waits in a session of its own, and ends if this one does."""
    reader, writer = os.pipe()
    ready, is_ready = os.pipe()
    pid = os.fork()
    if pid:
        for descriptor in (reader, is_ready):
            os.close(descriptor)
        os.read(ready, 1)
        os.close(ready)
        return _Waiting(pid, writer)
    os.setsid()
    close_files(but=(reader, is_ready))  # the other processes' pipes, too, which would keep them waiting
    os.write(is_ready, b"r")
    os.close(is_ready)
    with open(reader, "rb") as channel:
        text = channel.read()
    if not text:
        os._exit(0)
    argv, env = json.loads(text)
    raise BecomeProgram(argv, env)
