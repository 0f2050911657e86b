"""Preparing a model: its files fetched and verified, with a receipt; weights only as safetensors, never as pickles."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.prepare import Task, prepare_at, prepare_in
from trainwright.initializers.source import Announce, Wanted, fetch
from trainwright.storage.digests import files_below, silent
from trainwright.storage.model_weights import weights_damage
from trainwright.storage.uri import StorageUri
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt, receipted

log = logging.getLogger(__name__)
_ALLOWED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def initialize_model(
    uri: str, target: Path, *, ignore: tuple[str, ...] = (), announce: Announce = lambda _total: silent
) -> Receipt:
    """Put the model at `uri` into `target` as a folder that transformers loads; returns the receipt.

    A target that has it already, in the same state, is left as it is. The folder appears whole.
    Raises InitializerError (no config, no tokenizer, no safetensors weights, broken weights), StorageError, NoSpace.
    """
    return prepare_at(_task(uri, ignore, announce), target)


def prepare_model(
    uri: str, workspace: Path, *, ignore: tuple[str, ...] = (), announce: Announce = lambda _total: silent
) -> Prepared:
    """Put the model at `uri` into the store that all runs of `workspace` share; returns its receipt and its folder.

    What was prepared of the same source in the same state is taken; so is what an earlier version left in
    `WORKSPACE/model`. Files are read-only. Raises as `initialize_model`.
    """
    return prepare_in(_task(uri, ignore, announce), workspace)


def _task(uri: str, ignore: tuple[str, ...], announce: Announce) -> Task:
    wanted = Wanted("model", _ALLOWED, ignore)
    options = {"ignore": list(ignore)}

    def make(source: StorageUri, revision: str | None, scratch: Path) -> tuple[Receipt, Path]:
        paths = fetch(source, wanted, revision, scratch, announce)
        _remove_others(scratch, paths)
        architecture = _checked_architecture(scratch, uri)
        files = receipted(scratch, paths)
        size = sum(file.size for file in files)
        details = {"architecture": architecture, "bytes": size}
        receipt = Receipt(kind="model", source=uri, revision=revision or "", options=options, files=files, details=details)
        receipt.write(scratch)
        log.info("model prepared uri=%s bytes=%d digest=%s", uri, size, receipt.digest)
        return receipt, scratch

    return Task("model", uri, wanted, options, make)


def _remove_others(folder: Path, paths: list[Path]) -> None:
    """What the hub's client keeps beside its downloads, and what an earlier attempt with other patterns fetched."""
    for path in files_below(folder):
        if path not in paths:
            (folder / path).unlink()
    for place, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(place):
            os.rmdir(place)


def _checked_architecture(folder: Path, uri: str) -> str:
    """What kind of model it is. Raises InitializerError for a folder that transformers would not load."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except FileNotFoundError as error:
        raise InitializerError(f"{uri} has no config.json: it is no model that transformers loads") from error
    except (ValueError, RecursionError) as error:
        raise InitializerError(f"{uri}: config.json is not JSON: {error}") from error
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise InitializerError(f"{uri} has no tokenizer")
    if not any(folder.glob("*.safetensors")):
        raise InitializerError(f"{uri} has no weights as safetensors; pickled weights (.bin, .pt) are not loaded")
    damage = weights_damage(folder)
    if damage is not None:
        raise InitializerError(f"{uri} is not whole: {damage}")
    match config:
        case {"architectures": [str(first), *_]}:
            return first
        case dict():
            return "unknown"
        case _:
            raise InitializerError(f"{uri}: config.json is no object")
