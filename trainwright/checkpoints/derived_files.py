"""The small files of an export that are written for it: how the adapter names its base, how generation stops, and the card.

They follow from the checkpoint and from the records beside it only, so that a second export of the same checkpoint has the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.foreign_settings import read_config
from trainwright.checkpoints.formats.whole_files import ADAPTER_CONFIG, MAX_JSON_BYTES
from trainwright.checkpoints.origin import Inputs
from trainwright.checkpoints.registries.export_facts import checkpoint_facts
from trainwright.checkpoints.registries.model_card import CARD, export_card, is_generated_card
from trainwright.checkpoints.special_tokens import GENERATION_CONFIG, aligned_generation, special_token_ids
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain

_ADAPTER_DEPTH = 2
"""PEFT writes an adapter of another name than `default` to a folder."""
_MAX_CARD_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Subject:
    """What an export is of, for its card: the name of the run, the step and format of the checkpoint, its metrics, and those of the
    export's metadata that every export of the checkpoint has.
    """

    run: str
    step: int
    format: str
    metrics: Mapping[str, float]
    metadata: Mapping[str, Any]


def derived_files(folder: Path, paths: Iterable[Path], inputs: Inputs, subject: Subject) -> dict[Path, bytes]:
    """Return the contents of the files that the export has in place of those in `folder`, or beside them, of which it has `paths`.

    Raises OSError.
    """
    exported = {*paths}
    found = dict(_adapter_configs(folder, exported, inputs))
    if Path(ADAPTER_CONFIG) in exported and Path(GENERATION_CONFIG) not in exported and (tokens := special_token_ids(folder)):
        found[Path(GENERATION_CONFIG)] = _document(aligned_generation(inputs.generation, tokens))

    def read(name: str) -> bytes | None:
        path = Path(name)
        return found[path] if path in found else _content(folder / name, folder) if path in exported else None

    facts = checkpoint_facts(
        read,
        {path.as_posix() for path in (*exported, *found)},
        step=subject.step,
        format=subject.format,
        metrics=subject.metrics,
        metadata=subject.metadata,
        run=subject.run,
    )
    readme = _content(folder / CARD, folder) if Path(CARD) in exported else None
    if is_generated_card(readme) if readme is not None else facts.pipeline_tag:
        found[Path(CARD)] = export_card(facts).encode()
    return found


def _adapter_configs(folder: Path, paths: Iterable[Path], inputs: Inputs) -> Iterator[tuple[Path, bytes]]:
    """Yield the configurations that name the prepared base by its path in a pod, where nobody else finds it."""
    name, revision = inputs.base_name
    for path in paths if name else ():
        if path.name != ADAPTER_CONFIG or len(path.parts) > _ADAPTER_DEPTH:
            continue
        try:
            config = read_config(folder / path.parent, path.name)
        except ValueError:  # no adapter of PEFT
            continue
        recorded = config.get("base_model_name_or_path", "")
        # A program that has loaded the base from the Hub has named it.
        if recorded is None or (isinstance(recorded, str) and recorded == inputs.model_path and recorded != name):
            yield path, _document({**config, "base_model_name_or_path": name, "revision": revision or None})


def without_base(config: bytes) -> Any:
    """Return the settings of an adapter without what names its base; anything else as it is."""
    try:
        found = json.loads(config)
    except (ValueError, RecursionError):  # compared as it is: nothing of it can be left out
        return config
    kept = ("base_model_name_or_path", "revision")
    return {name: value for name, value in found.items() if name not in kept} if isinstance(found, dict) else config


def _content(path: Path, folder: Path) -> bytes | None:
    try:
        return read_plain(path, _MAX_CARD_BYTES if path.name == CARD else MAX_JSON_BYTES, folder)
    except UnsafeFile:  # larger than any that is read here
        return None


def _document(value: Mapping[str, Any]) -> bytes:
    """As PEFT and transformers write it."""
    return json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
