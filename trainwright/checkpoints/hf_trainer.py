"""When is a folder `checkpoint-N` of transformers' Trainer whole?

The Trainer writes weights, then optimizer and random states, then `trainer_state.json` - last, but not atomically, and
without waiting for other ranks; a name alone proves nothing.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from trainwright.storage.model_weights import weights_damage

_NAME = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
STATE = "trainer_state.json"
_CONFIGS = ("config.json", "adapter_config.json")


def step_of(folder: Path) -> int | None:
    """The step that a folder's name says, or None when it is no checkpoint folder."""
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else None


def incomplete_because(folder: Path, step: int | None = None) -> str | None:
    """Why the checkpoint is not whole, or None when it is; `step` defaults to what the folder's name says. Raises OSError."""
    state = _state(folder)
    if state is None:
        return f"{STATE} is missing or not whole"
    if state.get("global_step") != (step_of(folder) if step is None else step):
        return f"{STATE} is of step {state.get('global_step')}"
    return weights_damage(folder) or _damaged_config(folder) or _damaged_states(folder) or _missing_random_states(folder)


def training_state(folder: Path) -> dict[str, object]:
    """`trainer_state.json`, empty where there is none."""
    return _state(folder) or {}


def _state(folder: Path) -> dict[str, object] | None:
    try:
        state = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return state if isinstance(state, dict) else None


def _damaged_config(folder: Path) -> str | None:
    for name in _CONFIGS:
        try:
            json.loads((folder / name).read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError):
            return f"{name} is not whole"
    return None


def _damaged_states(folder: Path) -> str | None:
    """torch writes zip files, whose directory is at their end: one that was cut off is none."""
    for path in sorted(folder.glob("*.pt")) + sorted(folder.glob("*.pth")):
        if not zipfile.is_zipfile(path):
            return f"{path.name} is cut off"
    return None


def _missing_random_states(folder: Path) -> str | None:
    """With several ranks there is one file for each; a gap means that a rank was still writing."""
    ranks = sorted(
        int(match[1]) for path in folder.glob("rng_state_*.pth") if (match := re.fullmatch(r"rng_state_([0-9]+)\.pth", path.name))
    )
    missing = sorted(set(range(len(ranks))) - set(ranks))
    return f"rng_state_{missing[0]}.pth is missing" if missing else None
