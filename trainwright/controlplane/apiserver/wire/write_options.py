"""The options of a write: dry run, field validation, subresource, field manager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainwright.controlplane.apiserver.wire.requester import Requester


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
    sender: Requester | None = None
    """Who sends the write; None for controllers of this process."""
    is_checked: bool = False
    """The sender of an update that creates may create: checked for the kind of the request, not for the one it is stored as."""
