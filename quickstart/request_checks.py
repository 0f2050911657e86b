"""Checks what was asked for before anything is started: a wrong EXPORT would otherwise be found after the training.

Everything here takes less than a second, except the connection to an object store.
"""

from __future__ import annotations

import os

from pydantic import ValidationError

from trainwright.checkpoints.manifest import LATEST, MANIFEST
from trainwright.initializers import DatasetOptions, InitializerError
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.source import resolve_revision
from trainwright.jobs.request.invalid_settings import message_of
from trainwright.jobs.trainers.sft import SftSettings
from trainwright.quickstart.run_folder import Request, RunError
from trainwright.storage import open_store
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import Unreadable, read_json

_OBJECTS = ("az", "gs", "s3")
_READABLE = ("file", "hf", "http", "https", *_OBJECTS)
_WRITABLE = ("file", *_OBJECTS)


def check_request(request: Request) -> None:
    """Raise RunError, with the variable of `make finetune` and one line, for what could not succeed."""
    _check_settings(request.settings)
    try:
        DatasetOptions.model_validate({"columns": read_json(request.columns or "{}"), "layout": request.layout})
    except Unreadable as error:
        raise RunError(f"COLUMNS is not valid JSON: {one_line(error)}") from None
    except ValidationError as error:
        raise RunError(f"COLUMNS or LAYOUT: {message_of(error)}") from None
    _check_source("DATASET", request.dataset)
    if request.model:
        _check_source("MODEL", request.model)
    if request.export:
        _check_export(request.export)
    if not 1 <= request.nodes <= 64:
        raise RunError(f"--nodes {request.nodes}: expected 1 to 64")


def _check_settings(text: str) -> None:
    try:
        settings = read_json(text)
    except Unreadable as error:
        raise RunError(f"SETTINGS is not valid JSON: {one_line(error)}") from None
    if not isinstance(settings, dict):
        raise RunError('SETTINGS must be a JSON object, as in {"steps": 100, "learning_rate": 0.001}')
    try:
        SftSettings.model_validate(settings)
    except ValidationError as error:
        raise RunError(f"SETTINGS: {message_of(error)}") from None


def _check_source(variable: str, text: str) -> None:
    uri = _parsed(variable, text, _READABLE)
    try:
        if uri.scheme == "file":
            path = uri.path
            if not path.exists():
                raise RunError(f"{variable}={path}: no such file or folder")
            if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
                raise RunError(f"{variable}={path}: no permission to read it")
            if variable == "MODEL" and not any((path / name).is_file() for name in ("config.json", MANIFEST, LATEST)):
                raise RunError(
                    f"MODEL={path}: expected the folder of a transformers model, which contains config.json, or of an export"
                )
        elif uri.scheme != "hf":
            resolve_revision(uri, FileFilter("dataset" if variable == "DATASET" else "model"))
    except (InitializerError, StorageError) as error:
        raise RunError(f"{variable}: {one_line(error)}") from None
    except OSError as error:
        raise RunError(f"{variable}={text}: {error.strerror}") from None


def _check_export(text: str) -> None:
    """Write and remove a small file: permissions and full disks show in no other way."""
    uri = _parsed("EXPORT", text, _WRITABLE)
    try:
        open_store(str(uri)).check_writable()
    except (StorageError, OSError) as error:
        raise RunError(f"EXPORT={text} cannot be written to: {one_line(error)}") from None


def _parsed(variable: str, text: str, schemes: tuple[str, ...]) -> StorageUri:
    try:
        uri = StorageUri.parse(text)
    except StorageError as error:
        raise RunError(f"{variable}: {one_line(error)}") from None
    if uri.scheme not in schemes:
        raise RunError(f"{variable}={text}: expected one of {', '.join(f'{scheme}://' for scheme in schemes)}")
    return uri
