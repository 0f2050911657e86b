"""Preparing a model: its files fetched and verified, with a receipt; weights only as safetensors, never as pickles."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from trainwright.api.hub_names import with_scheme
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.placement import already_there, take_place
from trainwright.initializers.receipt import Receipt, receipted
from trainwright.initializers.source import Announce, Wanted, fetch, revision_of
from trainwright.storage.digests import files_below, silent
from trainwright.storage.model_weights import weights_damage
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri

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
    source = StorageUri.parse(with_scheme(uri))
    wanted = Wanted("model", _ALLOWED, ignore)
    options = {"ignore": list(ignore)}
    with disk_errors(target):
        revision = revision_of(source, wanted)
        receipt = already_there("model", target, uri, revision, options)
        if receipt is not None:
            return receipt
        with scratch_folder(target, f"model {uri} {revision}") as prepared:
            paths = fetch(source, wanted, revision, prepared, announce)
            _remove_others(prepared, paths)
            architecture = _checked_architecture(prepared, uri)
            files = receipted(prepared, paths)
            size = sum(file.size for file in files)
            details = {"architecture": architecture, "bytes": size}
            receipt = Receipt(kind="model", source=uri, revision=revision or "", options=options, files=files, details=details)
            receipt.write(prepared)
            take_place("model", prepared, target)
    log.info("model prepared uri=%s bytes=%d digest=%s", uri, size, receipt.digest)
    return receipt


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
