"""Resizes Jobs of a running JobSet (feature gate ElasticJobSet)."""

from __future__ import annotations

from trainwright.api.objects import Obj


def resize_patch(replicated: Obj, job: Obj) -> Obj | None:
    """Return the patch of a Job's parallelism and completions, or None if unchanged. Only equal values are supported."""
    spec = replicated["template"]["spec"]
    size = spec.get("parallelism")
    if size is None or size != spec.get("completions"):
        return None
    patch = {"parallelism": size, "completions": size}
    return None if patch.items() <= job["spec"].items() else patch
