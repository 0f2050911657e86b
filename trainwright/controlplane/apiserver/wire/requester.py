"""What admission needs to know of the sender of a write: some writes give rights away, which the sender must have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj


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
