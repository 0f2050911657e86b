"""A whole TrainJob as the request: an object, YAML text or a file becomes one checked object without identity or status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainwright.api.admission.admit import admit
from trainwright.api.documents import load_documents
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, copy_of
from trainwright.jobs.request.secret_detection import LiteralSecret, refuse_literals
from trainwright.jobs.request.setting_values import whole_numbers
from trainwright.migration import is_legacy, migrate

_NAME = "trainjob"
"""Stands for the name until the step gives it its own."""


def checked_manifest(given: Any) -> Obj | None:
    """The TrainJob of an object, of YAML or JSON text, or of the file that a text names; None for nothing.

    Early forms are migrated. The name is the step's to give and is dropped; labels, annotations and namespace stay.
    Raises ValueError with every problem that the API server would have.
    """
    if given is None or given in ("", {}):
        return None
    try:
        document = whole_numbers(_only_trainjob(_documents(given)))
        refuse_literals({"manifest": document})  # before any error can repeat a value
        return _checked(document)
    except LiteralSecret:
        raise
    except (ApiError, ValueError) as error:
        refuse_literals({"manifest": str(error)})  # of a text that could not be looked at
        raise ValueError(str(error)) from None


def _documents(given: Any) -> list[Obj]:
    if isinstance(given, dict):
        return [given]
    if not isinstance(given, str | Path):
        raise ValueError(f"expected an object, YAML text or a path, got {type(given).__name__}")
    text = str(given)
    if "\n" not in text and text.endswith((".yaml", ".yml", ".json")):
        try:
            return load_documents(Path(text).read_bytes(), text)
        except OSError as error:
            raise ValueError(f"{text}: {error.strerror}") from None
    return load_documents(text, "manifest")


def _only_trainjob(documents: list[Obj]) -> Obj:
    kinds = [str(document.get("kind") or "no kind") for document in documents]
    if kinds != ["TrainJob"]:
        raise ValueError(f"expected one TrainJob, found {', '.join(kinds) or 'nothing'}")
    return documents[0]


def _checked(document: Obj) -> Obj:
    if is_legacy(document):
        document = migrate(document).objects[-1]
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata: expected an object")
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
    manifest: Obj = {key: value for key, value in document.items() if key not in ("metadata", "status")}
    admit({**copy_of(manifest), "metadata": {"namespace": "default", **kept, "name": _NAME}})
    return {**manifest, "metadata": kept}
