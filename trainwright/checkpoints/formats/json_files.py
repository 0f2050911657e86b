"""Checks the small JSON files that libraries write beside the weights, and reads `trainer_state.json` of transformers' Trainer."""

from __future__ import annotations

import json
from pathlib import Path

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain

STATE = "trainer_state.json"
MAX_JSON_BYTES = 256 * 1024 * 1024
"""The state contains the whole log history."""
_CONFIGS = (
    "config.json",
    "adapter_config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "params.json",
    "original_repo_id.json",
)
_COMPANIONS = (
    ("adapter_model.safetensors", ("adapter_config.json",)),
    ("generation_config.json", ("config.json", "adapter_config.json")),
)
"""A library writes the second file, or an export one of them, whenever it writes the first."""


def config_error(folder: Path) -> str | None:
    """Return which configuration file is missing or incomplete, or None. Raises UnsafeFile, OSError."""
    for name in _CONFIGS:
        try:
            json.loads(read_plain(folder / name, MAX_JSON_BYTES, folder))
        except FileNotFoundError:
            continue
        except (IsADirectoryError, ValueError, RecursionError):
            return f"{name} is incomplete"
    for first, others in _COMPANIONS:
        if (folder / first).exists() and not any((folder / other).exists() for other in others):
            return f"{others[0]} is missing"
    return None


def parse_state(content: bytes) -> dict[str, object] | None:
    """Return the contents of a `trainer_state.json`, or None if they are invalid."""
    try:
        state = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return state if isinstance(state, dict) else None


def read_state(folder: Path) -> dict[str, object] | None:
    """Return the contents of the folder's `trainer_state.json`, or None if it is missing or invalid. Raises UnsafeFile."""
    try:
        return parse_state(read_plain(folder / STATE, MAX_JSON_BYTES, folder))
    except OSError:
        return None


def training_state(folder: Path) -> dict[str, object]:
    """Return the contents of `trainer_state.json`, or an empty dict if it is missing, refused or invalid."""
    try:
        return read_state(folder) or {}
    except UnsafeFile:
        return {}


def state_error(folder: Path, step: int) -> str | None:
    """Return why the folder's `trainer_state.json` is not that of `step`, or None. Raises UnsafeFile."""
    state = read_state(folder)
    if state is None:
        return f"{STATE} is missing or incomplete"
    if state.get("global_step") != step:
        return f"{STATE} is of step {state.get('global_step')}"
    return None


def recorded_step(folder: Path) -> int:
    """Return the step in the folder's `trainer_state.json`, or 0 without a valid one."""
    step = training_state(folder).get("global_step")
    return step if isinstance(step, int) and step >= 0 else 0
