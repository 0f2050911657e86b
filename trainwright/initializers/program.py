"""Where a TrainJob's initializer step puts what it prepares: the environment says which of three ways it goes.

A digest is given: it was prepared before, and is only verified. A shared workspace is given: prepared there, then linked into
the folder of the run. Else into the target itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from trainwright.api.names import DATASET_DIGEST_VARIABLE, MODEL_DIGEST_VARIABLE, RUN_FOLDER_VARIABLE, SHARED_VARIABLE
from trainwright.initializers.dataset import DatasetOptions, initialize_dataset, prepare_dataset
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.model import initialize_model, prepare_model
from trainwright.initializers.placement import check_ours, take_place
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.layout import Kind, step_path
from trainwright.workspace.links import link_prepared
from trainwright.workspace.prepared import Prepared, verify_prepared
from trainwright.workspace.receipt import Receipt, read_receipt

log = logging.getLogger(__name__)
DIGEST_VARIABLES = {"dataset": DATASET_DIGEST_VARIABLE, "model": MODEL_DIGEST_VARIABLE}


def run_initializer(kind: Kind, target: Path, environ: Mapping[str, str]) -> Receipt:
    """Do what the step's environment asks for; returns the receipt of what is in place.

    Raises InitializerError, WorkspaceError, StorageError, and pydantic's ValidationError for options that make no sense.
    """
    if digest := environ.get(DIGEST_VARIABLES[kind], ""):
        return verify_prepared(kind, target, digest)
    uri = environ.get("STORAGE_URI", "")
    if not uri:
        raise InitializerError("STORAGE_URI is not set: name the source in the TrainJob's spec.initializer")
    shared, folder = environ.get(SHARED_VARIABLE, ""), environ.get(RUN_FOLDER_VARIABLE, "")
    if shared and folder:
        return _prepare_for_run(kind, uri, Path(shared), folder, environ)
    if kind == "model":
        return initialize_model(uri, target, ignore=_ignored(environ))
    return initialize_dataset(uri, target, _options(environ))


def _prepare_for_run(kind: Kind, uri: str, workspace: Path, folder: str, environ: Mapping[str, str]) -> Receipt:
    place = step_path(workspace, folder) / kind
    if kind == "model":
        prepared = prepare_model(uri, workspace, ignore=_ignored(environ))
    else:
        prepared = prepare_dataset(uri, workspace, _options(environ))
    link_into_run(kind, prepared, place)
    return prepared.receipt


def link_into_run(kind: Kind, prepared: Prepared, place: Path) -> None:
    """Put the prepared folder at `place` too, by hard links or copies; one that is right already is left as it is.

    Raises InitializerError for something that was not prepared by Trainwright, StorageError.
    """
    with disk_errors(place):
        check_ours(kind, place)
        there = read_receipt(place)
        if there is not None and there.digest == prepared.digest and there.holds(place):
            return
        with scratch_folder(place, prepared.digest) as scratch:
            link_prepared(prepared.receipt, prepared.folder, scratch)
            take_place(kind, scratch, place)
    log.info("%s linked into the run's folder from=%s to=%s", kind, prepared.folder, place)


def _ignored(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(filter(None, (pattern.strip() for pattern in environ.get("IGNORE_PATTERNS", "").split(","))))


def _options(environ: Mapping[str, str]) -> DatasetOptions | None:
    """None where nothing is said: whatever an earlier step prepared from this source is used."""
    options: dict[str, object] = {"ignore": ignore} if (ignore := _ignored(environ)) else {}
    for field in ("layout", "test_fraction", "max_rows"):
        if text := environ.get(f"DATASET_{field.upper()}"):
            options[field] = text
    return DatasetOptions.model_validate(options) if options else None
