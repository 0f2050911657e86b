"""Imports what training programs import, and describes the state of the process afterwards: what forked programs depend on.

Standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from dataclasses import dataclass

from trainwright.controlplane.node.warm_start.variables import RecordingEnvironment

MODULES = ("torch", "torch.distributed.run", "torch._dynamo", "torch.distributed.fsdp", "torch.nn.parallel")
OPTIONAL_MODULES = ("transformers.modeling_utils", "peft")
"""Not the Trainer and not TRL: they import pyarrow, which starts a thread."""


class CannotServe(Exception):
    """Programs forked from this process would differ from executed ones. The message is the reason."""


@dataclass(frozen=True)
class Parent:
    """What forked programs need to know of the process that has imported the modules."""

    path: list[str]
    """`sys.path` without the folder of the running script."""
    env: dict[str, str]
    """The variables with which the process was started."""
    added: dict[str, str]
    """What the interpreter added to them at its start."""
    read: set[str]
    """The variables that were read by Python code during imports."""
    loaded: frozenset[str]
    """The names of top-level modules."""
    files: tuple[tuple[str, int, int, int], ...]
    """The files and folders that the imported modules depend on: path, modification time in ns, size, inode."""

    def is_stale(self) -> bool:
        """Whether a file of an imported module has changed, or a package was installed or removed."""
        return any(_state(path) != (path, *state) for path, *state in self.files)


def preload(env: dict[str, str]) -> Parent:
    """Import the modules, and check that this process can be forked for programs. Raises CannotServe, ImportError.

    `env` are the variables that this process was started with.
    """
    added = {name: value for name, value in os.environ.items() if name not in env}
    started_with = set(os.environ)
    os.environ.__class__ = RecordingEnvironment
    try:
        for name in MODULES:
            importlib.import_module(name)
        for name in OPTIONAL_MODULES:
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
    finally:
        os.environ.__class__ = os._Environ
    for name in set(os.environ) - started_with:  # such as TORCHINDUCTOR_CACHE_DIR, which is computed again when it is missing
        del os.environ[name]
    _end_threads()
    _check()
    files = tuple(state for path in sorted(_paths()) if (state := _state(path)) is not None)
    loaded = frozenset(name.partition(".")[0] for name in sys.modules)
    return Parent(sys.path[:], env, added, RecordingEnvironment.names, loaded, files)


def _end_threads() -> None:
    """OpenBLAS ends its threads before a fork, and starts them again when a program needs them."""
    gc.collect()
    gc.freeze()  # so that the collections of programs do not copy shared pages
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _check() -> None:
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise CannotServe(f"the imported modules have started threads: {threads}")
    devices = [
        name for each in os.listdir("/proc/self/fd") if (name := _link(each)).startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri"))
    ]
    import torch

    if devices or torch.cuda.is_initialized():
        raise CannotServe(f"the imported modules use the GPU: {', '.join(sorted(set(devices))) or 'CUDA is initialized'}")


def _link(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # the folder that was listed
        return ""


def _paths() -> set[str]:
    modules = [vars(module).get("__file__") for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    packages = {path for path in sys.path if path.endswith("-packages")}  # changes when one is installed or removed
    return packages | {path for path in modules if isinstance(path, str) and os.path.isabs(path)}


def _state(path: str) -> tuple[str, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return path, found.st_mtime_ns, found.st_size, found.st_ino
