"""A running JobSet that may change its size (gate ElasticJobSet): what must change in a Job of it."""

from __future__ import annotations

from trainwright.api.objects import Obj


def resized(replicated: Obj, job: Obj) -> Obj | None:
    """The new parallelism and completions of a Job; None where it has them. Only equal ones are followed."""
    spec = replicated["template"]["spec"]
    size = spec.get("parallelism")
    if size is None or size != spec.get("completions"):
        return None
    wanted = {"parallelism": size, "completions": size}
    return None if wanted.items() <= job["spec"].items() else wanted
