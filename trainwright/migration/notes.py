"""The result of a migration: the new objects, and notes about changed or dropped fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainwright.api.objects import Obj

_TEMPLATE = re.compile(r"(?:spec\.template\.)?spec\.replicatedJobs\[(\d+)\]\.template\.spec\.template")


@dataclass(frozen=True)
class Note:
    """A field of the old manifest, and how it was migrated."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass
class Notes:
    """Collects notes in the order of the manifest's fields."""

    notes: list[Note] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        self.notes.append(Note(path, text))


@dataclass(frozen=True)
class MigrationResult:
    """The objects to apply, in order: runtimes first, then the TrainJob."""

    objects: list[Obj]
    notes: list[Note]
    templates: list[str] = field(default_factory=list)
    """The paths in the old manifest of the pod templates, by replicated job; empty if the pods are not of this manifest."""

    def old_path(self, path: str) -> str:
        """Return where a field of the new objects was in the old manifest, if it was in a pod template."""
        found = _TEMPLATE.match(path)
        if found is None or int(found.group(1)) >= len(self.templates):
            return path
        return f"{self.templates[int(found.group(1))]}{path[found.end() :]}"
