"""Users who send requests, with the rules that they hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trainwright.api.kinds import Kind

Rule = dict[str, Any]


@dataclass
class Sender:
    """Who holds the rules, and the verbs `escalate` and `bind` on the roles named."""

    held: list[Rule] = field(default_factory=list)
    verbs: tuple[tuple[str, str], ...] = ()
    is_administrator: bool = False
    name: str = "jane"
    groups: tuple[str, ...] = ("a", "b")

    def may(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        return (verb, kind.plural) in self.verbs

    def require(self, verb: str, kind: Kind, namespace: str, name: str) -> None:
        raise AssertionError("the objects are created by POST")

    def rules(self, namespace: str) -> Iterable[Rule]:
        return self.held
