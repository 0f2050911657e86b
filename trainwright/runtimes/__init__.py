"""Training runtimes: the bundled catalogue, and finding the one that a TrainJob names."""

from trainwright.runtimes.bundled import bundled_runtime, bundled_runtimes
from trainwright.runtimes.resolve import ResolvedRuntime, RuntimeNotFound, resolve_runtime

__all__ = ["ResolvedRuntime", "RuntimeNotFound", "bundled_runtime", "bundled_runtimes", "resolve_runtime"]
