"""The options of a write (dry run, field validation, subresource, field manager), and what admission needs to know of its sender.

Some writes give rights away, which the sender must have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj


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


class Requester(Protocol):
    """The sender of a request. The controllers of this process have none."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> tuple[str, ...]: ...

    @property
    def is_administrator(self) -> bool: ...

    def may(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """Whether the sender has a verb on an object."""

    def require(self, verb: str, kind: Kind, namespace: str, name: str) -> None:
        """Raises Forbidden if the sender does not have a verb on an object."""

    def rules(self, namespace: str) -> Iterable[Obj]:
        """The sender's RBAC rules in a namespace; those for the whole cluster if it is empty."""
