"""The tokens at which a model stops, begins and is padded: read from a tokenizer's files, and put into a model's settings.

transformers' Trainer aligns the settings of the model that it trains with its tokenizer (`align_special_tokens`), and saves them
with all weights. An adapter is saved without settings, so that they are aligned here in the same way. Needs no transformers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.whole_files import CONFIG, MAX_JSON_BYTES
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain

GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG, _TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_NAMES = ("bos", "eos", "pad")
_IDS = tuple(f"{name}_token_id" for name in _NAMES)
_EOS = "eos_token_id"
_MAX_DIGITS = 9


def special_token_ids(folder: Path) -> dict[str, int]:
    """Return `bos_token_id`, `eos_token_id` and `pad_token_id` of the tokenizer in a folder, as far as it defines them."""
    config = _read(folder / TOKENIZER_CONFIG)
    tokens = {f"{name}_token_id": text for name in _NAMES if (text := _text(config.get(f"{name}_token")))}
    if not tokens:  # the tokenizer defines none
        return {}
    known = _ids(folder, config)
    return {name: known[token] for name, token in tokens.items() if token in known}


def generation_settings(folder: Path) -> dict[str, Any]:
    """Return the generation settings of a model: those in its file, else the tokens of its configuration, as transformers does."""
    if found := _read(folder / GENERATION_CONFIG):
        return found
    config = _read(folder / CONFIG)
    return {name: config[name] for name in _IDS if config.get(name) is not None}


def joined_generation(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generation settings of a base model with those of an adapter of it; end tokens of either count."""
    joined = {**base, **own}
    if missing := [one for one in _listed(base.get(_EOS)) if one is not None and one not in _listed(joined.get(_EOS))]:
        joined[_EOS] = [*_listed(joined[_EOS]), *missing]
    return joined


def aligned_generation(generation: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
    """Return generation settings with the tokens of a tokenizer; further end tokens are kept."""
    return _aligned({name: generation.get(name) for name in _IDS}, generation, tokens)[1]


def aligned_settings(
    config: Mapping[str, Any], generation: Mapping[str, Any], tokens: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration and the generation settings of a model with the tokens of a tokenizer."""
    text = config.get("text_config")
    if not isinstance(text, dict):  # a model of text alone has its tokens at the top
        return _aligned(config, generation, tokens)
    text, settings = _aligned(text, generation, tokens)
    return {**config, "text_config": text}, settings


def _aligned(
    config: Mapping[str, Any], generation: Mapping[str, Any], tokens: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    new, settings = dict(config), dict(generation)
    for name, token in tokens.items():
        declared, listed = config.get(name), _listed(generation.get(name))
        if token in _listed(declared) and token in listed:  # the settings say it already
            continue
        several = name == _EOS
        new[name] = [token, *(one for one in declared if one != token)] if several and isinstance(declared, list) else token
        settings[name] = [token, *(one for one in listed if one not in (None, token))] if several else token
    return new, settings


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _ids(folder: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """Return the id of each token that the files of a tokenizer name; those that were added last win."""
    found: dict[str, int] = {}
    tokenizer = _read(folder / _TOKENIZER)
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # of Unigram: the position is the id
        vocabulary = {entry[0]: index for index, entry in enumerate(vocabulary) if isinstance(entry, list) and entry}
    for names in (_read(folder / "vocab.json"), vocabulary, _read(folder / "added_tokens.json")):
        if isinstance(names, dict):
            found.update((token, number) for token, number in names.items() if isinstance(number, int))
    found.update(_added(tokenizer, config))
    return found


def _added(tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    decoder = config.get("added_tokens_decoder")
    for number, entry in decoder.items() if isinstance(decoder, dict) else ():
        if number.isdecimal() and len(number) <= _MAX_DIGITS and (text := _text(entry)):
            yield text, int(number)
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), int) and (text := _text(entry)):
            yield text, entry["id"]


def _text(token: Any) -> str:
    """Return the text of a token, which is written as such or as an object with its `content`."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _read(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty if there is none."""
    try:
        found = json.loads(read_plain(path, MAX_JSON_BYTES, path.parent))
    except (OSError, UnsafeFile, ValueError, RecursionError):  # not every tokenizer has each of these files
        return {}
    return found if isinstance(found, dict) else {}
