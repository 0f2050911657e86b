"""Prepares a model: downloads and verifies its files, and writes a receipt. Weights only as safetensors, never as pickles."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from trainwright.checkpoints.formats.foreign_settings import ADAPTER_CONFIG, foreign_settings_error, read_config
from trainwright.checkpoints.formats.weights import weights_error
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched
from trainwright.initializers.file_filter import FileFilter, StartProgress
from trainwright.initializers.lfs_pointer import refuse_pointer
from trainwright.initializers.model_files import fetch_model
from trainwright.initializers.prepare import Preparation, parse_source, prepare_folder, prepare_in_workspace
from trainwright.initializers.trained_models import quantization_of, untrainable_reason
from trainwright.storage.plain_files import no_progress
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import one_line
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt, ReceiptFile, digest_files

log = logging.getLogger(__name__)
_ALLOWED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def initialize_model(
    uri: str, target: Path, *, ignore: tuple[str, ...] = (), start_progress: StartProgress = lambda _total: no_progress
) -> Receipt:
    """Write the model at `uri` to `target`, atomically, as a folder that transformers can load. Returns the receipt.

    An existing result is reused if source, revision and options are the same.
    Raises InitializerError (no config, one that names code elsewhere, no tokenizer, no safetensors weights, corrupt weights),
    StorageError, NoSpace.
    """
    return prepare_folder(_preparation(uri, ignore, start_progress), target)


def prepare_model(
    uri: str, workspace: Path, *, ignore: tuple[str, ...] = (), start_progress: StartProgress = lambda _total: no_progress
) -> Prepared:
    """Write the model at `uri` to the store shared by all runs of `workspace`. Returns its receipt and its folder.

    An existing result is reused if source, revision and options are the same. Files are read-only. Raises the errors of
    `initialize_model`.
    """
    return prepare_in_workspace(_preparation(uri, ignore, start_progress), workspace)


def _preparation(uri: str, ignore: tuple[str, ...], start_progress: StartProgress) -> Preparation:
    parsed, uri = parse_source(uri)
    file_filter = FileFilter("model", _ALLOWED, ignore)
    options = {"ignore": list(ignore)}

    def make(source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
        fetched = fetch_model(source, file_filter, revision, scratch, start_progress, where=uri)
        _remove_others(scratch, fetched.paths)
        architecture = _checked_architecture(scratch, uri)
        files = _receipt_files(scratch, fetched)
        size = sum(file.size for file in files)
        details = {"architecture": architecture, "bytes": size, **fetched.details}
        receipt = Receipt(kind="model", source=uri, revision=revision or "", options=options, files=files, details=details)
        receipt.write(scratch)
        log.info("model prepared uri=%s bytes=%d digest=%s", uri, size, receipt.digest)
        return receipt, scratch

    return Preparation("model", parsed, uri, file_filter, options, make)


def _receipt_files(folder: Path, fetched: Fetched) -> tuple[ReceiptFile, ...]:
    """Return the entries of the receipt. Reads only the files whose digest was not verified when they were written."""
    known = [
        ReceiptFile(path=path.as_posix(), size=(folder / path).stat().st_size, sha256=fetched.sha256[path])
        for path in fetched.paths
        if path in fetched.sha256
    ]
    read = digest_files(folder, [path for path in fetched.paths if path not in fetched.sha256])
    return tuple(sorted((*known, *read), key=lambda file: Path(file.path)))


def _remove_others(folder: Path, paths: list[Path]) -> None:
    """Remove the metadata of the hub's client, and files of an earlier attempt with other patterns."""
    kept = {folder / path for path in paths}
    for parent, folders, names in os.walk(folder, topdown=False):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for path in (Path(parent, name) for name in (*links, *names)):
            if path not in kept:
                path.unlink()
        if not os.listdir(parent):
            os.rmdir(parent)


def _of_base(folder: Path) -> str:
    """Return which model an adapter is of, as a message continues with it, as far as its configuration says it."""
    try:
        base = read_config(folder, ADAPTER_CONFIG).get("base_model_name_or_path")
    except (OSError, ValueError):
        base = None
    return f" of {one_line(base)[:200]}" if isinstance(base, str) and base else ""


def _checked_architecture(folder: Path, uri: str) -> str:
    """Return the model's architecture. Raises InitializerError for a folder that transformers cannot load."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        refuse_pointer(path, f"{uri}: {path.relative_to(folder)}")
    try:
        config = read_config(folder)
    except FileNotFoundError as error:
        if (folder / ADAPTER_CONFIG).is_file():
            raise InitializerError(
                f"{uri} is an adapter{_of_base(folder)}, and a base model is expected: name that one, or an export of both merged"
            ) from error
        raise InitializerError(f"{uri} has no config.json: transformers cannot load it") from error
    except ValueError as error:
        raise InitializerError(f"{uri}: {error}") from error
    if (foreign := foreign_settings_error(folder)) is not None:
        raise InitializerError(f"{uri}: {foreign}")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise InitializerError(f"{uri} has no tokenizer")
    problem = weights_error(folder)
    if problem is not None:
        raise InitializerError(f"{uri} is incomplete: {problem}")
    if reason := untrainable_reason(config):
        log.warning("event=model_not_trained_by_trl uri=%s reason=%r", uri, reason)
    elif method := quantization_of(config):
        log.warning(
            "event=model_quantized uri=%s method=%s reason=%r", uri, method, "only adapters can be trained on such weights"
        )
    match config:
        case {"architectures": [str(first), *_]}:
            return first
        case _:
            return "unknown"
