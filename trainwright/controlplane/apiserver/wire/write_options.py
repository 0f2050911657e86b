"""How a write is meant: tried or done, checked how strictly, of what, by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WriteOptions:
    """How a write is meant. `status` addresses the status subresource, which writes the status and nothing else."""

    dry_run: bool = False
    strictness: Literal["Strict", "Warn", "Ignore"] = "Warn"
    status: bool = False
    manager: str = "trainwright"
    """Who comes to own what is written."""
    force: bool = False
    """An apply takes what others own, instead of reporting a conflict."""
    duplicates: tuple[str, ...] = ()
    """Fields that the author wrote twice."""
