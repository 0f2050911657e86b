"""Reading the recordings of the real Trainer, and finding what a TrainJob of theirs was built from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recording_archives import recordings_of

from recorders import compare_objects
from trainwright.api.admission.admit import admit

Obj = dict[str, Any]


@dataclass
class Recording:
    """One case, in its folder."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def has(self, file: str) -> bool:
        return (self.folder / f"{file}.yaml").exists()

    def documents(self, file: str) -> list[Obj]:
        """The objects of a file; those of a List one by one."""
        loaded: list[Obj] = compare_objects.load(self.folder / f"{file}.yaml")
        if loaded and isinstance(loaded[0], dict) and loaded[0].get("kind") == "List":
            return list(loaded[0]["items"])
        return loaded

    def trainjob_and_runtime(self, file: str = "input") -> tuple[Obj, Obj]:
        """Both admitted. Raises Invalid where one of them is refused."""
        documents = self.documents(file)
        trainjob = admit(documents[-1]).object
        reference = trainjob["spec"]["runtimeRef"]
        runtimes = [d for d in documents[:-1] if (d["kind"], d["metadata"]["name"]) == (reference["kind"], reference["name"])]
        return trainjob, admit(runtimes[0]).object

    def difference(self, want: list[Obj], got: list[Obj]) -> str:
        """Empty where both are the same under the recordings' rules."""
        return "; ".join(compare_objects.diff(compare_objects.objects(want), compare_objects.objects(got))[:3])


def recordings(kind: str, pattern: str = "*") -> list[Recording]:
    folder = recordings_of("materialize")
    return [Recording(path) for path in sorted((folder / kind).glob(pattern)) if path.is_dir()]
