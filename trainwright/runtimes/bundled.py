"""The runtimes that come with Trainwright, as YAML files beside this one."""

from __future__ import annotations

from functools import cache
from importlib import resources

from trainwright.api.documents import load_documents
from trainwright.api.objects import Obj, copy_of, name_of


def bundled_runtimes() -> list[Obj]:
    """All bundled runtimes (ClusterTrainingRuntime), sorted by name; the caller may change them."""
    return [copy_of(runtime) for runtime in _catalogue()]


def bundled_runtime(name: str) -> Obj | None:
    """One bundled runtime, or None."""
    return next((copy_of(runtime) for runtime in _catalogue() if name_of(runtime) == name), None)


@cache
def _catalogue() -> list[Obj]:
    folder = resources.files("trainwright.runtimes") / "catalogue"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    runtimes = [document for file in files for document in load_documents((folder / file).read_text("utf-8"), file)]
    return sorted(runtimes, key=name_of)
