"""The runtimes bundled with Trainwright, as YAML files in `catalogue`, those in folders of the user, and which one a job names.

A `runtimeRef` is resolved in the cluster first, then in the catalogue if that is allowed.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from trainwright.api.documents import load_documents
from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.objects import Obj, name_of
from trainwright.runtimes.image import PLACEHOLDERS, image

FOLDERS = "TRAINWRIGHT_RUNTIMES"
"""Environment variable with folders of additional runtimes, separated like PATH."""
_LIKE_SFT = {
    "dpo": "Direct preference optimization (chosen and rejected answers)",
    "kto": "Kahneman-Tversky optimization (answers that are marked good or bad, or pairs)",
}
"""Scripts of TRL whose runtime is trl-sft with another name, script and learning rate."""
Lookup = Callable[[str, str], Obj | None]
"""Maps `(kind, name)` to a runtime or None. A TrainingRuntime is looked up in the TrainJob's namespace."""


def bundled_runtimes(image_setting: str = "") -> list[Obj]:
    """Return copies of all bundled runtimes (ClusterTrainingRuntime), sorted by name.

    `image_setting`, else TRAINWRIGHT_IMAGE, chooses the project's own images (`runtimes.image`).
    """
    return [_with_images(runtime, image_setting) for runtime in _catalogue()]


def bundled_runtime(name: str, image_setting: str = "") -> Obj | None:
    """Return a copy of a bundled runtime, or None. `image_setting` is that of `bundled_runtimes`."""
    return next((_with_images(runtime, image_setting) for runtime in _catalogue() if name_of(runtime) == name), None)


def catalogue_texts() -> dict[str, str]:
    """Return the texts of the bundled runtimes, as YAML, by the names of their files."""
    folder = resources.files("trainwright.runtimes") / "catalogue"
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    for script, title in _LIKE_SFT.items():
        others = {
            "Supervised fine-tuning": title,
            "trl sft": f"trl {script}",
            "trl-sft": f"trl-{script}",
            "trl.scripts.sft": f"trl.scripts.{script}",
            "2e-4": "5e-6",
        }
        text = texts["trl-sft.yaml"]
        for own, other in others.items():
            text = text.replace(own, other)
        texts[f"trl-{script}.yaml"] = text
    return dict(sorted(texts.items()))


def _with_images(runtime: Obj, setting: str) -> Obj:
    """Return a copy with the project's own images in the place of their placeholders."""
    chosen = {placeholder: image(name, setting) for placeholder, name in PLACEHOLDERS.items()}

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: chosen[part] if key == "image" and _is_own(part) else replaced(part) for key, part in value.items()}
        return [replaced(part) for part in value] if isinstance(value, list) else value

    changed: Obj = replaced(runtime)
    return changed


def _is_own(part: object) -> bool:
    return isinstance(part, str) and part in PLACEHOLDERS


@cache
def _catalogue() -> list[Obj]:
    """Return all runtimes by name. A user's runtime overrides a bundled one with the same name."""
    runtimes = {name_of(runtime): runtime for runtime in _runtimes(catalogue_texts())}
    for added in filter(None, os.environ.get(FOLDERS, "").split(os.pathsep)):
        if not Path(added).is_dir():
            raise BadRequest(f"{FOLDERS}: {added} is not a folder")
        runtimes |= {name_of(runtime): runtime for runtime in _runtimes_in(Path(added))}
    return [runtimes[name] for name in sorted(runtimes)]


def _runtimes_in(folder: Path) -> list[Obj]:
    """Load the runtimes in a folder of the user. Raises BadRequest, which names the file, if one is unreadable or not a runtime."""
    return _runtimes({file.name: _text(file) for file in sorted(folder.iterdir()) if file.name.endswith((".yaml", ".yml"))})


def _runtimes(texts: dict[str, str]) -> list[Obj]:
    documents = [(file, document) for file, text in texts.items() for document in load_documents(text, file)]
    for file, document in documents:
        if document.get("kind") != "ClusterTrainingRuntime" or not (document.get("metadata") or {}).get("name"):
            raise BadRequest(f"{file}: expected a ClusterTrainingRuntime with a name, found {document.get('kind')}")
    return [document for _, document in documents]


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{file}: cannot be read: {error}") from error


@dataclass(frozen=True)
class ResolvedRuntime:
    """A runtime and its source."""

    runtime: Obj
    source: Literal["cluster", "bundled"]


class RuntimeNotFound(Invalid):
    """The runtime of a TrainJob does not exist. The message lists the existing ones."""


def resolve_runtime(
    ref: Obj, lookup: Lookup, *, bundled: bool, known: Iterable[str] | None = None, unlisted: str = ""
) -> ResolvedRuntime:
    """Return the runtime of `spec.runtimeRef`.

    `bundled` also searches the catalogue (only for ClusterTrainingRuntime). For the error message, `known` are the existing names,
    None if they were not listed, and `unlisted` is why they cannot be. Raises RuntimeNotFound.
    """
    kind, name = str(ref.get("kind") or "ClusterTrainingRuntime"), str(ref.get("name") or "")
    found = lookup(kind, name)
    if found is not None:
        return ResolvedRuntime(found, "cluster")
    if bundled and kind == "ClusterTrainingRuntime" and (runtime := bundled_runtime(name)) is not None:
        return ResolvedRuntime(runtime, "bundled")
    names = sorted({*(known or ()), *((name_of(r) for r in bundled_runtimes()) if bundled else ())})
    similar = difflib.get_close_matches(name, names, 1, 0.5)
    message = f"there is no {kind} {name!r}"
    if names or known is not None:
        suggestion = f"did you mean {similar[0]!r}? " if similar else ""
        message += f"; {suggestion}known: {', '.join(names) or 'none'}"
    if unlisted:
        message += f"; those of the cluster cannot be listed: {unlisted}"
    field = "spec.runtimeRef" if kind == "TrainingRuntime" else "spec.RuntimeRef"
    raise RuntimeNotFound(f"{field}: {message}", problems=[Problem(field, message)])
