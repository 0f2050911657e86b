"""Reading the recordings of the real Trainer, and finding what a TrainJob of theirs was built from."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.api.admission import admit

Obj = dict[str, Any]


@cache
def compare_module(folder: Path) -> Any:
    """The comparison that comes with the recordings."""
    spec = importlib.util.spec_from_file_location("compare", folder / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Recording:
    """One case: its folder, and the comparison to read it with."""

    folder: Path
    compare: Any

    @property
    def name(self) -> str:
        return self.folder.name

    def has(self, file: str) -> bool:
        return (self.folder / f"{file}.yaml").exists()

    def documents(self, file: str) -> list[Obj]:
        """The objects of a file; those of a List one by one."""
        loaded: list[Obj] = self.compare.load(self.folder / f"{file}.yaml")
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
        return "; ".join(self.compare.diff(self.compare.objects(want), self.compare.objects(got))[:3])


def recordings(shared: Path, kind: str, pattern: str = "*") -> list[Recording]:
    folder = shared / "goldens" / "materialize"
    compare = compare_module(folder)
    return [Recording(path, compare) for path in sorted((folder / kind).glob(pattern)) if path.is_dir()]
