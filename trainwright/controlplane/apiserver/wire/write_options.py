"""The options of a write: dry run, field validation, subresource, field manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write. `status` selects the status subresource, which writes only the status."""

    dry_run: bool = False
    field_validation: Literal["Strict", "Warn", "Ignore"] = "Warn"
    status: bool = False
    field_manager: str = "trainwright"
    """The field manager that owns the written fields."""
    force: bool = False
    """Apply takes over fields of other managers instead of reporting a conflict."""
    duplicate_fields: tuple[str, ...] = ()
    """Paths of duplicate fields in the request body."""
