"""Fetches the files of a model that transformers loads, and few others: many repositories have the same weights several times.

The weights are `model.safetensors`, else the shards that its index names, and an adapter's. Copies for other libraries, of other
precisions and in other folders stay behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwright.checkpoints.formats.weights import ADAPTER, INDEX, SINGLE, read_shards
from trainwright.initializers.dataset_card import CARD, read_metadata
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.fetched import Fetched
from trainwright.initializers.file_filter import FileFilter, StartProgress
from trainwright.initializers.source import fetch, revision_for
from trainwright.storage.plain_files import no_progress
from trainwright.storage.uri import StorageUri
from trainwright.text.hub_names import is_bare_name

_WEIGHTS, _GGUF = ".safetensors", ".gguf"
_PICKLES = (".bin", ".pt", ".pth")
_TEMPLATES = "additional_chat_templates/"
_LLAMA_TOKENIZER = "original/tokenizer.model"
"""The one that torchtune reads, of Llama 3: the stock runtimes name it."""
_ADAPTER_CONFIG = "adapter_config.json"
_MAX_SHOWN = 3
_MAX_NAME = 200


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
    weights = _weights(fetched, {name for name in small.names if file_filter.matches(name)}, target)
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


def _weights(fetched: set[str], names: set[str], target: Path) -> set[str]:
    """Return the names of the weights. An index that cannot be read counts as weights, so that its error is reported."""
    found = {SINGLE} & names
    if not found and INDEX in fetched:
        found = {*read_shards(target / INDEX)} & names or {INDEX}
    return found | ({ADAPTER} & names if _ADAPTER_CONFIG in fetched else set())


def _without_weights(
    source: StorageUri, names: set[str], revision: str | None, target: Path, where: str
) -> InitializerError | None:
    """Return the error of a repository whose only weights are GGUF, which names the model that they were made from."""
    quantized = sorted(name for name in names if name.lower().endswith(_GGUF))
    if not quantized or any(name.endswith(_WEIGHTS) for name in names):
        return None
    original = _base_model(source, names, revision, target)
    use = f"; its card names the original model: hf://{original}" if original else "; use the model that they were made from"
    return InitializerError(f"{where} has weights only as GGUF ({_listed(quantized)}), but training reads safetensors{use}")


def _base_model(source: StorageUri, names: set[str], revision: str | None, target: Path) -> str:
    if CARD not in names:
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
