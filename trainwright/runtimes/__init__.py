"""Training runtimes: the bundled catalogue, and resolving the one that a TrainJob refers to.

Names are imported lazily, because components need only `runtimes.image` and not the API package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.runtimes.bundled import bundled_runtime, bundled_runtimes
    from trainwright.runtimes.resolve import ResolvedRuntime, RuntimeNotFound, resolve_runtime

__all__ = ["ResolvedRuntime", "RuntimeNotFound", "bundled_runtime", "bundled_runtimes", "resolve_runtime"]
_MODULES = {
    "ResolvedRuntime": "resolve",
    "RuntimeNotFound": "resolve",
    "bundled_runtime": "bundled",
    "bundled_runtimes": "bundled",
    "resolve_runtime": "resolve",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
