"""Merges an adapter into a copy of its base model, and publishes it as an export of its own, in the folder beside that of the run.

The adapter is taken from its export and the base model from the workspace, both by their digests, so that what is merged is what
the manifest of the merged export names.

In the files of the base the weights that the adapter changes are replaced. All other bytes of the weights stay as they are, which
is checked, as is every weight that was written. Shards are merged one after another. The tokenizer is that of the training, and the
settings of the model say the tokens at which it was trained to stop.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export, open_export
from trainwright.checkpoints.formats.hf_trainer import FORMAT
from trainwright.checkpoints.formats.whole_files import ADAPTER, ADAPTER_CONFIG, CONFIG, STATE
from trainwright.checkpoints.manifest import LOSS_ON, MERGED, OWNER, USAGE, Manifest
from trainwright.checkpoints.merged.lora import LoraAdapter, TensorFile, read_lora
from trainwright.checkpoints.origin import SOURCES_KEY
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.checkpoints.special_tokens import (
    GENERATION_CONFIG,
    TOKENIZER_CONFIG,
    aligned_settings,
    generation_settings,
    joined_generation,
    special_token_ids,
)
from trainwright.checkpoints.training_start import STARTS_KEY
from trainwright.jobs.state.run_folder import RUNS, export_name
from trainwright.storage.locks import file_lock, lock_path
from trainwright.storage.open import open_store
from trainwright.storage.plain_files import CHUNK, files_below, open_plain, read_plain
from trainwright.storage.transfer import check_space, copy_new_file, disk_errors, write_bytes
from trainwright.storage.uri import StorageUri
from trainwright.text.text_input import read_json
from trainwright.workspace.deletion import remove_tree
from trainwright.workspace.layout import prepared_path, step_path
from trainwright.workspace.prepared import verify_prepared
from trainwright.workspace.run_record import FINDINGS

log = logging.getLogger(__name__)
_SCRATCH = ".merging"
_DESCRIBED = ("origin", SOURCES_KEY, STARTS_KEY, OWNER, USAGE, LOSS_ON, FINDINGS)
"""What the manifest of the merged export says as that of the adapter does."""
_OF_TRAINING = (
    STATE,
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "chat_template*",
    "processor_config.json",
    "preprocessor_config.json",
)
"""Files that are the adapter's if it has them: the training may have changed the tokenizer, and its state says which step it is."""
_STALE = ("special_tokens_map.json", "added_tokens.json", "chat_template*")
"""Files of the base that contradict the tokenizer of the training if that has none of them: libraries read them last."""
_EMBEDDINGS = {"lm_head", "embed_tokens", "wte", "embed_in", "embed_out", "word_embeddings", "tok_embeddings"}
"""Modules that models may tie to each other."""
_MAX_CONFIG_BYTES = 4 * 1024 * 1024
_NOT_COPIED = ("README.md", ".*")
"""Of the base: its card, and our own records."""


def is_adapter(manifest: Manifest) -> bool:
    """Whether an export is an adapter of PEFT, and no full model."""
    return {ADAPTER_CONFIG, ADAPTER} <= {file.path for file in manifest.files}


def merged_folder(run_uri: str) -> str:
    """Return the URI of the folder with the merged exports of a run whose exports are in `run_uri`. No run has it as its own."""
    parent, _, name = run_uri.rstrip("/").rpartition("/")
    return f"{parent}/{export_name(f'{RUNS}/{name}/{MERGED}')}"


def export_merged(workspace: Path, folder: str, uri: str, digest: str) -> ExportResult:
    """Merge the adapter of the export at `uri` into its base model, and export that. `folder` is of the run, in `workspace`.

    An intact export of the same adapter and base model is returned. Raises CheckpointError for a base model that is not in the
    workspace (PreparedMismatch), an adapter that cannot be merged, and as `export_checkpoint`; StorageError, NoSpace.
    """
    if find_spec("numpy") is None:
        raise CheckpointError("merge_adapter needs numpy: pip install 'trainwright[merge]', or use the image launcher")
    adapter = open_export(uri, digest)
    if adapter.manifest.format != FORMAT:
        raise CheckpointError(f"{uri}: only adapters of the format {FORMAT} are merged, and this is {adapter.manifest.format}")
    base_digest, found = _base_of(adapter), adapter.manifest.metadata
    about: dict[str, Any] = {"adapter": adapter.manifest.digest, "base_model": base_digest}
    target = merged_folder(str(StorageUri.parse(uri)).rpartition("/")[0])
    if (known := _exported_before(target, about)) is not None:  # an earlier try has published it
        return known
    base = prepared_path(workspace, "model", base_digest)
    verify_prepared("model", base, base_digest)
    scratch = step_path(workspace, folder) / _SCRATCH
    with disk_errors(scratch), file_lock(lock_path(scratch)):
        remove_tree(scratch)  # of a process that was killed
        try:
            name = f"checkpoint-{adapter.manifest.step}"
            restore_checkpoint(uri, scratch / "adapter" / name, digest=digest)
            merge_adapter(base, scratch / "adapter" / name, scratch / "model" / name)
            return export_checkpoint(
                scratch / "model",
                target,
                source=adapter.manifest.source,
                step=adapter.manifest.step,
                options=ExportOptions(resumable=False, supersede=True, quiet_seconds=0),
                metadata={**{name: found[name] for name in _DESCRIBED if name in found}, MERGED: about},
            )
        finally:
            remove_tree(scratch)


def _base_of(adapter: Export) -> str:
    origin = adapter.manifest.metadata.get("origin")
    digest = origin.get("model") if isinstance(origin, dict) else None
    if not isinstance(digest, str) or not digest:
        raise CheckpointError(
            f"{adapter.uri}: the manifest does not record the base model, so that nothing can be merged; "
            "export it from a run with a prepared model"
        )
    return digest


def _exported_before(target: str, about: dict[str, Any]) -> ExportResult | None:
    """Return an intact export of the same, or None."""
    store = open_store(target)
    for listed in reversed(read_catalog(store).exports):
        if listed.export.manifest.metadata.get(MERGED) == about:
            try:
                manifest = verify_export(listed.export.uri, digest=listed.export.manifest.digest)
            except CheckpointError as error:  # it is merged again, to a new export
                log.warning("event=merged_export_damaged uri=%s reason=%r", listed.export.uri, str(error))
                return None
            return ExportResult(listed.export.uri, manifest, True, store.capabilities())
    return None


def merge_adapter(base: Path, adapter: Path, target: Path) -> int:
    """Write the base model in `base` with the adapter in `adapter` to the new folder `target`. Returns the number of changed weights.

    Raises CheckpointError for an adapter that cannot be merged, does not fit the base model, or leaves it with values that are not
    finite; StorageError, NoSpace.
    """
    lora = read_lora(adapter)
    with disk_errors(target):
        kept = [path for path in files_below(base) if not _matches(path, _NOT_COPIED)]
        own = [path for path in files_below(adapter) if _matches(path, _OF_TRAINING)]
        if Path(TOKENIZER_CONFIG) in own:
            kept = [path for path in kept if not _matches(path, _STALE)]
        sources = {**dict.fromkeys(kept, base), **dict.fromkeys(own, adapter)}
        weights = [TensorFile.open(base / path) for path in kept if path.suffix == ".safetensors"]
        _check_fits(lora, base, weights)
        _check_same_rows(lora, base, weights)
        _check_not_tied(lora, base)
        target.mkdir(parents=True)
        check_space(target, sum((folder / path).stat().st_size for path, folder in sources.items()))
        for path, folder in sources.items():
            copy_new_file(folder / path, target / path, within=folder)
        _align_tokens(base, adapter, target)
        for file in weights:
            merged = target / file.path.relative_to(base)
            written = _replace_weights(file, merged, lora)
            _verify(file, merged, written)
    log.info("event=adapter_merged weights=%d", len(lora.changes))
    return len(lora.changes)


def _align_tokens(base: Path, adapter: Path, target: Path) -> None:
    """Put the tokens of the training's tokenizer into the settings of the model, as transformers does before it trains all weights."""
    before, generation = _config_of(base), generation_settings(base)
    own = joined_generation(generation, generation_settings(adapter))
    config, settings = aligned_settings(before, own, special_token_ids(adapter))
    for name, old, new in ((CONFIG, before, config), (GENERATION_CONFIG, generation, settings)):
        if new != old:
            write_bytes(target / name, json.dumps(new, indent=2, sort_keys=True).encode() + b"\n")


def _matches(path: Path, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path.as_posix(), pattern) for pattern in patterns)


def _check_fits(lora: LoraAdapter, base: Path, weights: list[TensorFile]) -> None:
    """Every weight that the adapter changes must be in exactly one file of the base."""
    found = [name for file in weights for name in file.tensors]
    if missing := sorted(lora.changes.keys() - set(found)):
        raise CheckpointError(
            f"{base}: the base model has no weight {missing[0]!r}, which the adapter changes ({len(missing)} of {len(lora.changes)} "
            "are missing): it is another model's, or its output layer is tied to its embedding; merge it with PEFT"
        )
    if twice := sorted(name for name in lora.changes if found.count(name) > 1):
        raise CheckpointError(f"{base}: the weight {twice[0]!r} is in several files; keep one set of weights")


def _check_same_rows(lora: LoraAdapter, base: Path, weights: list[TensorFile]) -> None:
    """Added tokens make the embedding longer, and nothing but the weights that the adapter changes would know it."""
    shapes = {name: tensor.shape for file in weights for name, tensor in file.tensors.items()}
    for name, change in lora.changes.items():
        own = lora.file.tensors[change.whole].shape if change.whole else shapes[name]
        if own != shapes[name]:
            raise CheckpointError(
                f"{lora.file.path}: {name} is {own}, and {shapes[name]} in the base model: the training has resized it, as for added "
                "tokens; merge it with PEFT (resize_token_embeddings, then merge_and_unload), or leave merge_adapter out"
            )


def _check_not_tied(lora: LoraAdapter, base: Path) -> None:
    """A loader that ties the output layer to the embedding ignores one of both: the merged model would be another one in silence."""
    changed = sorted(name for name in lora.changes if name.split(".")[-2:-1] and name.split(".")[-2] in _EMBEDDINGS)
    if changed and _config_of(base).get("tie_word_embeddings") is not False:
        raise CheckpointError(
            f"{base}: the adapter changes {changed[0]!r}, and config.json does not say that the output layer is apart from the "
            "embedding (tie_word_embeddings: false); merge it with PEFT"
        )


def _config_of(base: Path) -> Mapping[str, Any]:
    try:
        config = read_json(read_plain(base / CONFIG, _MAX_CONFIG_BYTES, base))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{base / CONFIG} cannot be read: {error}") from error
    return config if isinstance(config, dict) else {}


def _replace_weights(file: TensorFile, merged: Path, lora: LoraAdapter) -> Mapping[str, str]:
    """Replace what the adapter changes in a copy of a file. Returns the SHA-256 of each weight that was written."""
    changed = [name for name in file.tensors if name in lora.changes]
    if not changed:  # a shard without trained weights stays a copy
        return {}
    merged.chmod(0o644)  # a prepared model is read-only
    with open(merged, "r+b") as writing:
        return {name: file.replace(writing, name, lora.apply(name, file.read(name))) for name in changed}


def _verify(file: TensorFile, merged: Path, written: Mapping[str, str]) -> None:
    """Compare a merged file, as it lies on the disk, with what was to be written and, for all else, with the base."""
    with open_plain(file.path) as before, open_plain(merged) as after:
        at = 0
        for tensor in file.by_offset():
            _require_equal(before, after, tensor.begin - at, merged)
            at = tensor.begin + tensor.size
            if tensor.name not in written:  # the base is the reference
                _require_equal(before, after, tensor.size, merged)
                continue
            before.seek(at)
            if hashlib.sha256(after.read(tensor.size)).hexdigest() != written[tensor.name]:
                raise CheckpointError(f"{merged}: {tensor.name} is not what was written; the disk may be failing")
        if before.read(1) or after.read(1):
            raise CheckpointError(f"{merged} has more than its tensors; the disk may be failing")


def _require_equal(before: BinaryIO, after: BinaryIO, size: int, merged: Path) -> None:
    while size > 0:
        count = min(size, CHUNK)
        content = before.read(count)
        if len(content) < count or content != after.read(count):
            raise CheckpointError(f"{merged} was changed during the merge; try again")
        size -= count
