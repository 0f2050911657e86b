"""Reads and validates a whole TrainJob as the request, from an object, YAML text or a file; drops its name and status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationInfo

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.documents import load_documents
from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj, copy_of
from trainwright.cluster.protocol import FieldValidation
from trainwright.jobs.credentials.secret_detection import LiteralSecret, reject_literals
from trainwright.jobs.request.setting_values import floats_to_integers
from trainwright.migration import is_legacy, migrate

_NAME = "trainjob"
"""Placeholder name for validation; the step determines the real name."""


def checked_manifest(given: Any, info: ValidationInfo) -> Obj | None:
    """Return the TrainJob of an object, of YAML or JSON text, or of a file path; None for an empty value.

    Manifests of earlier versions are migrated. The name is dropped, as the step determines it; labels, annotations and
    namespace are kept. The validation context may set `field_validation` to Ignore, to leave unknown fields to the API server, and
    `reads_files` to False, for a request that another step has made: there a path is refused.
    Raises ValueError with every problem that the API server would report.
    """
    if given is None or given in ("", {}):
        return None
    if not (context := info.context or {}).get("reads_files", True) and manifest_file(given):
        raise ValueError("expected an object or YAML text: only the step that is given a file reads it")
    try:
        document = floats_to_integers(_only_trainjob(manifest_documents(given)))
        reject_literals({"manifest": document})  # before any error message can contain a value
        return _checked(document, context.get("field_validation", "Strict"))
    except LiteralSecret:
        raise
    except (ApiError, ValueError) as error:
        reject_literals({"manifest": str(error)})  # for text that could not be parsed
        raise ValueError(str(error)) from None


def manifest_file(given: Any) -> Path | None:
    """Return the path of a manifest that is given as one; None for an object or a text."""
    text = str(given) if isinstance(given, str | Path) else ""
    return Path(text) if "\n" not in text and text.endswith((".yaml", ".yml", ".json")) else None


def manifest_documents(given: Any) -> list[Obj]:
    """Return the objects in a manifest, as it is given: an object, text or a path. Raises ApiError, ValueError."""
    if isinstance(given, dict):
        return [given]
    if not isinstance(given, str | Path):
        raise ValueError(f"expected an object, YAML text or a path, got {type(given).__name__}")
    file = manifest_file(given)
    if file is None:
        return load_documents(str(given), "manifest")
    try:
        return load_documents(file.read_bytes(), str(given))
    except OSError as error:
        raise ValueError(f"{given}: {error.strerror}") from None


def _only_trainjob(documents: list[Obj]) -> Obj:
    kinds = [str(document.get("kind") or "no kind") for document in documents]
    if kinds != ["TrainJob"]:
        raise ValueError(f"expected one TrainJob, found {', '.join(kinds) or 'nothing'}")
    return documents[0]


def _checked(document: Obj, strictness: FieldValidation) -> Obj:
    if is_legacy(document):
        document = migrate(document).objects[-1]
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("metadata: expected an object")
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if metadata.get(key)}
    manifest: Obj = {key: value for key, value in document.items() if key not in ("metadata", "status")}
    checked = {**copy_of(manifest), "metadata": {"namespace": "default", **kept, "name": _NAME}}
    admit(checked, context=AdmissionContext(strictness=strictness))
    return {**manifest, "metadata": kept}
