"""Changes to training frameworks that let them run on one machine without a GPU, made when a framework is imported.

The embedded node copies this folder into the Python environments that it makes, as the package `trainwright_shims`, which a .pth file
imports at each start of the interpreter: so this module imports nothing else, and works with Python 3.9 and newer. A framework's
shims are in the module with its name, which opens with their reasons and `VERSIONS`, the versions that they were made for.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # known to type checkers; importing it would cost every start of an interpreter 5 ms
    from typing import Any

SHIMS = {
    "deepspeed.comm.comm": ("deepspeed", "discover_port_of_job"),
    "deepspeed.comm.torch": ("deepspeed", "leave_out_shared_memory_op"),
    "jax._src.distributed": ("jax", "initialize_from_the_runtime"),
    "torch.distributed.distributed_c10d": ("torchtune", "use_gloo"),
    "torchtune.training.memory": ("torchtune", "measure_no_gpu"),
    "torchtune.utils._device": ("torchtune", "train_on_the_cpu"),
}
"""By the module that is changed: the package whose shim it is, and the function that changes the module after its import."""


class ShimFinder:
    """Finds modules as the other finders do, and has those with a shim changed as soon as they are executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in SHIMS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _ShimLoader(spec.loader)
                return spec
        return None


class _ShimLoader:
    """Behaves as the loader that it wraps, and leaves that one in the module."""

    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        apply_shim(module)


def apply_shim(module: Any) -> None:
    """Change a module that was imported, if its package has a version that the shim was made for. A failure is printed."""
    package, function = SHIMS[module.__name__]
    from importlib import import_module, metadata

    shims = import_module(f"{__name__}.{package}")
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:  # a shim for another package than the module's, which is not in this environment
        return
    lowest, below = shims.VERSIONS
    if not _numbers(lowest) <= _numbers(version) < _numbers(below):
        return
    try:
        getattr(shims, function)(module)
    except AttributeError as error:  # the module is not as in the versions that were tried
        print(f"trainwright_shims: {module.__name__} of {package} {version} stays as it is: {error}", file=sys.stderr)


def _numbers(version: str) -> list[int]:
    """Return the numbers at the beginning of a version, which order releases."""
    found = []
    for part in version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        found.append(int(digits or 0))
    return found


if __name__ == "trainwright_shims":  # as installed in an environment; the node itself changes nothing
    sys.meta_path.insert(0, ShimFinder())
