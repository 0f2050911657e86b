"""Prepares a model: downloads and verifies its files, and writes a receipt. Weights only as safetensors, never as pickles.

Many repositories have the same weights several times. Those that transformers loads are fetched: `model.safetensors`, else the
shards that its index names, and an adapter's. Copies for other libraries, of other precisions and in other folders stay behind.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwright.checkpoints.formats.foreign_settings import foreign_settings_error, read_config
from trainwright.checkpoints.formats.whole_files import ADAPTER, ADAPTER_CONFIG, INDEX, SINGLE, read_shards, weights_error
from trainwright.initializers.dataset_card import CARD, read_metadata
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched, FileFilter, StartProgress, refuse_pointer
from trainwright.initializers.prepare import Preparation, parse_source, prepare_folder, prepare_in_workspace
from trainwright.initializers.source import fetch, revision_for
from trainwright.initializers.trained_models import quantization_of, untrainable_reason
from trainwright.storage.plain_files import no_progress
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import one_line
from trainwright.text.hub_names import is_bare_name
from trainwright.workspace.prepared import Prepared
from trainwright.workspace.receipt import Receipt, ReceiptFile, digest_files

log = logging.getLogger(__name__)
_ALLOWED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
_WEIGHTS, _GGUF = ".safetensors", ".gguf"
_PICKLES = (".bin", ".pt", ".pth")
_TEMPLATES = "additional_chat_templates/"
_LLAMA_TOKENIZER = "original/tokenizer.model"
"""The one that torchtune reads, of Llama 3: the stock runtimes name it."""
_MAX_SHOWN = 3
_MAX_NAME = 200


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
    except (OSError, ValueError):  # the message does without it
        base = None
    return f" of {one_line(base)[:200]}" if isinstance(base, str) and base else ""


def _checked_architecture(folder: Path, uri: str) -> str:
    """Return the model's architecture. Raises InitializerError for a folder that transformers cannot load."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        refuse_pointer(path, f"{uri}: {path.relative_to(folder)}")
    try:
        config = read_config(folder)
    except FileNotFoundError as error:  # an adapter is the usual mistake
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


@dataclass(frozen=True)
class _SmallFiles(FileFilter):
    """Matches configuration and tokenizer. A source asks its filter about every name, so this learns the names of the weights."""

    names: set[str] = field(default_factory=set)

    def matches(self, name: str) -> bool:
        self.names.add(name)
        is_loaded = "/" not in name or name.startswith(_TEMPLATES) or name == _LLAMA_TOKENIZER
        return is_loaded and not name.endswith(_WEIGHTS) and super().matches(name)


def fetch_model(
    source: StorageUri, file_filter: FileFilter, revision: str | None, target: Path, start_progress: StartProgress, *, where: str
) -> Fetched:
    """Copy what transformers loads of a model to `target`. Resumes an interrupted transfer. `where` names the model in errors.

    Raises InitializerError (no weights as safetensors, no files), StorageError, NoSpace, OSError.
    """
    small = _SmallFiles(file_filter.kind, file_filter.allow, file_filter.ignore)
    try:
        beside = fetch(source, small, revision_for(source, small, revision), target, lambda _total: no_progress)
    except InitializerError as error:
        raise _without_weights(source, small.names, revision, target, where) or error from None
    fetched = {path.as_posix() for path in beside.paths}
    names = {name for name in small.names if file_filter.matches(name)}
    found = {SINGLE} & names
    if not found and INDEX in fetched:
        found = {*read_shards(target / INDEX)} & names or {INDEX}  # one that cannot be read counts, so that its error is reported
    weights = found | ({ADAPTER} & names if ADAPTER_CONFIG in fetched else set())
    if not weights:
        raise _without_weights(source, small.names, revision, target, where) or _no_safetensors(small.names, where)
    if SINGLE in weights:  # transformers does not look at an index beside it
        fetched.discard(INDEX)
    only = replace(file_filter, only=frozenset(weights))
    loaded = fetch(source, only, revision_for(source, only, revision), target, start_progress)
    return Fetched(
        [path for path in (*beside.paths, *loaded.paths) if path.as_posix() in fetched or path in loaded.paths],
        {**beside.sha256, **loaded.sha256},
        {**beside.details, **loaded.details},
    )


def _without_weights(
    source: StorageUri, names: set[str], revision: str | None, target: Path, where: str
) -> InitializerError | None:
    """Return the error of a repository whose only weights are GGUF, which names the model that they were made from."""
    quantized = sorted(name for name in names if name.lower().endswith(_GGUF))
    if not quantized or any(name.endswith(_WEIGHTS) for name in names):  # its weights are not the problem, or others are there
        return None
    original = _base_model(source, names, revision, target)
    use = f"; its card names the original model: hf://{original}" if original else "; use the model that they were made from"
    return InitializerError(f"{where} has weights only as GGUF ({_listed(quantized)}), but training reads safetensors{use}")


def _base_model(source: StorageUri, names: set[str], revision: str | None, target: Path) -> str:
    if CARD not in names:  # without a card the original is not known
        return ""
    card = FileFilter("model", (CARD,), only=frozenset({CARD}))
    fetch(source, card, revision_for(source, card, revision), target, lambda _total: no_progress)
    found = read_metadata(target / CARD, target).get("base_model")
    first = found[0] if isinstance(found, list) and found else found
    is_name = isinstance(first, str) and len(first) <= _MAX_NAME and first.isprintable() and is_bare_name(first)
    return str(first) if is_name else ""


def _no_safetensors(names: set[str], where: str) -> InitializerError:
    others = sorted(name for name in names if name.endswith(_WEIGHTS))
    if others:
        return InitializerError(
            f"{where} has neither {SINGLE} nor {INDEX}, which transformers loads, but {_listed(others)}; convert the weights"
        )
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    return InitializerError(
        f"{where} has no safetensors weights; pickled weights (.bin, .pt) are not supported"
        + (f": convert {_listed(pickles)} with save_pretrained of transformers" if pickles else "")
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN]) + (f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else "")
