"""The result of a migration: the new objects, and notes about changed or dropped fields."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwright.api.objects import Obj


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
