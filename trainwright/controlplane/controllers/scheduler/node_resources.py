"""Allocatable and requested resources of a node, as running totals, so that the cost per pod is constant."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.api.pod_requests import Requests
from trainwright.api.quantities import Quantity, parse_quantity

PODS = "pods"
_NOTHING = parse_quantity(0)


class NodeResources:
    """The resources of a node, including the number of pods."""

    def __init__(self, node: Obj, requested: Requests):
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        self._allocatable = {name: parse_quantity(amount) for name, amount in allocatable.items()}
        self._requested = dict(requested)

    def reserve(self, requests: Requests) -> None:
        """Add requests, even if they exceed the free resources."""
        add(self._requested, requests)

    def release(self, requests: Requests) -> None:
        """Subtract requests."""
        add(self._requested, requests, -1)

    def copy(self) -> NodeResources:
        """Return the same node, whose requests can be changed on their own."""
        other = NodeResources({}, self._requested)
        other._allocatable = self._allocatable
        return other

    def insufficient(self, requests: Requests) -> list[str]:
        """Return the resources that do not fit, the number of pods first; empty if all fit."""
        return [
            name for name, amount in _nonzero(requests) if self._requested.get(name, _NOTHING) + amount > self.allocatable(name)
        ]

    def exceeding_capacity(self, requests: Requests) -> list[str]:
        """Return the resources that do not fit even on an empty node."""
        return [name for name, amount in _nonzero(requests) if amount > self.allocatable(name)]

    def allocatable(self, name: str) -> Quantity:
        return self._allocatable.get(name, _NOTHING)


def add(total: Requests, more: Requests, times: int = 1) -> None:
    """Add requests to `total` in place; `times` -1 subtracts them."""
    for name, amount in more.items():
        total[name] = total.get(name, _NOTHING) + amount * times


def _nonzero(requests: Requests) -> list[tuple[str, Quantity]]:
    nonzero = [(name, amount) for name, amount in requests.items() if amount > _NOTHING]
    return sorted(nonzero, key=lambda entry: (entry[0] != PODS, entry[0]))
