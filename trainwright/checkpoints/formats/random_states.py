"""The random states of transformers' Trainer: one file per rank, written without a barrier, so any of them may be missing."""

from __future__ import annotations

import re
from pathlib import Path

_SINGLE = "rng_state.pth"
_RANK = re.compile(r"rng_state_([0-9]+)\.pth")


def is_random_state(name: str) -> bool:
    """Whether a file name is that of a random state."""
    return name == _SINGLE or _RANK.fullmatch(name) is not None


def missing_random_state(folder: Path, world_size: int | None, least_ranks: int = 0) -> str | None:
    """Return which rank's random state is missing, or None. Raises OSError.

    `world_size` is the number of ranks that trained, if known; `least_ranks` is known from other files of the checkpoint.
    Only a single rank writes `rng_state.pth`, whatever is recorded, and so a numbered file is never the only one.
    """
    names = {path.name for path in folder.iterdir()}
    ranks = {int(match[1]) for name in names if (match := _RANK.fullmatch(name))}
    is_single = _SINGLE in names and not ranks
    required = least_ranks if is_single else max(world_size or 0, least_ranks)
    if not ranks and required < 2:
        return None if is_single else f"{_SINGLE} is missing"
    expected = max(required, len(ranks), 1 if _SINGLE in names else 2)
    missing = next((rank for rank in range(expected) if rank not in ranks), None)
    if missing is None:
        return None
    trained = f": {required} ranks trained" if required > max(ranks, default=-1) + 1 else ""
    return f"rng_state_{missing}.pth is missing{trained}"
