"""Checks whether a `checkpoint-N` folder of transformers' Trainer is complete.

The Trainer writes weights, then optimizer and random states, and `trainer_state.json` last, but not atomically and without
waiting for other ranks. So the existence of the folder does not mean that it is complete.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.model_weights import weights_error
from trainwright.storage.plain_files import open_plain, read_plain

_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
STATE = "trainer_state.json"
_MAX_BYTES = 256 * 1024 * 1024
"""The state contains the whole log history."""
_CONFIGS = ("config.json", "adapter_config.json")


def step_of(folder: Path) -> int | None:
    """Return the step in a folder's name, or None if it is not a checkpoint folder."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def incomplete_reason(folder: Path, step: int | None = None) -> str | None:
    """Return why the checkpoint is incomplete, or None. `step` defaults to the one in the folder's name. Raises OSError."""
    try:
        problem = _state_error(folder, step) or weights_error(folder) or _config_error(folder)
        return problem or _states_error(folder) or _missing_random_states(folder)
    except UnsafeFile as error:
        return str(error)


def training_state(folder: Path) -> dict[str, object]:
    """Return the contents of `trainer_state.json`, or an empty dict if it is missing or invalid."""
    try:
        return _state(folder) or {}
    except UnsafeFile:
        return {}


def _state_error(folder: Path, step: int | None) -> str | None:
    state = _state(folder)
    if state is None:
        return f"{STATE} is missing or incomplete"
    if state.get("global_step") != (step_of(folder) if step is None else step):
        return f"{STATE} is of step {state.get('global_step')}"
    return None


def _state(folder: Path) -> dict[str, object] | None:
    try:
        return parse_state(read_plain(folder / STATE, _MAX_BYTES, folder))
    except OSError:
        return None


def parse_state(content: bytes) -> dict[str, object] | None:
    """Return the contents of a `trainer_state.json`, or None if they are invalid."""
    try:
        state = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return state if isinstance(state, dict) else None


def _config_error(folder: Path) -> str | None:
    for name in _CONFIGS:
        try:
            json.loads(read_plain(folder / name, _MAX_BYTES, folder))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            return f"{name} is incomplete"
    return None


def _states_error(folder: Path) -> str | None:
    """torch writes zip files, whose directory is at the end, so a truncated file is not a valid zip file."""
    for path in sorted(folder.glob("*.pt")) + sorted(folder.glob("*.pth")):
        with open_plain(path, folder) as file:
            if not zipfile.is_zipfile(file):
                return f"{path.name} is truncated"
    return None


def _missing_random_states(folder: Path) -> str | None:
    """With several ranks there is one file per rank. A gap means that a rank had not finished writing."""
    ranks = sorted(
        int(match[1]) for path in folder.glob("rng_state_*.pth") if (match := re.fullmatch(r"rng_state_([0-9]+)\.pth", path.name))
    )
    missing = sorted(set(range(len(ranks))) - set(ranks))
    return f"rng_state_{missing[0]}.pth is missing" if missing else None
