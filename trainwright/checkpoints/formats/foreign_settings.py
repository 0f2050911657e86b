"""Finds settings of a model or an adapter that make the libraries that load it fetch, import or read something else.

Loaders are given `trust_remote_code=False`, which covers `auto_map` only. transformers takes an `attn_implementation` with a slash for
a repository of the Hub, whose compiled kernel it downloads and runs; types of adapters of PEFT name other models, files and modules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.whole_files import ADAPTER_CONFIG, CONFIG
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain

ELSEWHERE = {
    "megatron_config": "imports the module that megatron_core names",
    "adapters": "loads other adapters",
    "shadow_model": "loads another model",
    "prompt_tuning_init_state_dict_path": "reads another file",
}
"""Settings of an adapter, and what PEFT does with them."""
_KERNEL = "_implementation"
_MAX_BYTES = 16 * 1024 * 1024


def read_config(folder: Path, name: str = CONFIG) -> dict[str, Any]:
    """Return the settings in a JSON file of a model's folder.

    Raises OSError, also FileNotFoundError, and ValueError for a file that is too large, no regular one, or no JSON object.
    """
    try:
        config = json.loads(read_plain(folder / name, _MAX_BYTES, folder))
    except UnsafeFile as error:
        raise ValueError(f"{name} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{name} is not a JSON object")
    return config


def foreign_settings_error(folder: Path) -> str | None:
    """Return which setting of a model's folder names code or files elsewhere, or why its configuration cannot be read; else None."""
    for name in (CONFIG, ADAPTER_CONFIG):
        if not (folder / name).exists():  # a model has no adapter's settings, and an adapter may have no model's
            continue
        try:
            config = read_config(folder, name)
        except (OSError, ValueError) as error:  # what cannot be read cannot be cleared
            return str(error)
        for key, value in _named(config):
            texts = value.values() if isinstance(value, dict) else [value]
            if key.endswith(_KERNEL) and any("/" in text for text in texts if isinstance(text, str)):
                return f"{name}: {key} is {str(value)[:100]!r}, code of the Hub that transformers would run; remove the setting"
        for key, effect in ELSEWHERE.items():
            if name == ADAPTER_CONFIG and config.get(key):
                return f"{name}: {key} is {str(config[key])[:100]!r}, with which PEFT {effect}; remove it, or merge the adapter"
    return None


def _named(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each key with its value, at any depth: a model of several has a configuration for each."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from one.items()
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
