"""Training runtimes: the bundled catalogue, and which one a TrainJob refers to.

Names are imported lazily, because components need only `runtimes.image` and not the API package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.runtimes.bundled import ResolvedRuntime, RuntimeNotFound, bundled_runtime, bundled_runtimes, resolve_runtime

__all__ = ["ResolvedRuntime", "RuntimeNotFound", "bundled_runtime", "bundled_runtimes", "resolve_runtime"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.bundled"), name)
