"""Resolves a URL path to a resource, an object or a subresource."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.api.kinds import NAMESPACE, Kind
from trainwright.controlplane.apiserver.resources.registry import CUSTOM_GROUPS, GROUP_VERSIONS, STRATEGIES_BY_PATH, Strategy

CONNECT_SUBRESOURCES = ("attach", "exec", "portforward")
"""Pod subresources that upgrade the connection."""
_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class NoSuchPath(Exception):
    """No resource is served at this path. With `text` the response body is plain text, as outside the built-in groups."""

    def __init__(self, *, text: bool):
        super().__init__("not found")
        self.text = text


@dataclass(frozen=True)
class Target:
    """A collection, an object (`name`) or a `subresource` of one. `namespace` is None for all namespaces."""

    strategy: Strategy
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def kind(self) -> Kind:
        return self.strategy.kind

    @property
    def namespace_key(self) -> str:
        """The namespace in storage keys; empty for cluster-scoped objects."""
        return self.namespace or ""


def parse_target(parts: list[str]) -> Target:
    """Resolve the segments of a path below `/api/VERSION` or `/apis/GROUP/VERSION`. Raises NoSuchPath."""
    group, version, *rest = parts[1:] if parts[0] == "apis" else ["", *parts[1:]]
    missing = NoSuchPath(text=group in CUSTOM_GROUPS or not any(group == served for served, _ in GROUP_VERSIONS))
    namespace = None
    if rest[0] == NAMESPACE.plural and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
        if not namespace:
            raise missing
    strategy = STRATEGIES_BY_PATH.get((group, version, rest[0]))
    if strategy is None or len(rest) > 3 or "" in rest:
        raise missing
    name, subresource = (*rest[1:], "", "")[:2]
    if strategy.kind.namespaced != (namespace is not None) and (name or namespace):
        raise missing
    if subresource and not strategy.custom and subresource not in _subresources(strategy.kind):
        raise missing
    return Target(strategy, namespace, name, subresource)


def _subresources(kind: Kind) -> set[str]:
    pods = {"log", "binding", "eviction", *CONNECT_SUBRESOURCES}
    own = {"pods": pods, "namespaces": {"finalize"}, "serviceaccounts": {"token"}}
    return ({"status"} if kind.status else set()) | own.get(kind.plural, set())
