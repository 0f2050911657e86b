"""What a node has, what of it is taken, and what still fits: running totals, so that a pod costs the same among thousands."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity
from trainwright.materialize.pod_requests import Requests

PODS = "pods"
_NOTHING = parse_quantity(0)


class Room:
    """One node's resources. Pods themselves are one of them, under the name that the node counts them by."""

    def __init__(self, node: Obj, taken: Requests):
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        self._all = {name: parse_quantity(amount) for name, amount in allocatable.items()}
        self._taken = dict(taken)

    def take(self, requests: Requests) -> None:
        """Also more than there is: what is bound is bound."""
        add(self._taken, requests)

    def lacking(self, requests: Requests) -> list[str]:
        """The resources of which there is too little left, the number of pods first; none when it fits."""
        return [name for name, amount in _asked(requests) if self._taken.get(name, _NOTHING) + amount > self.whole(name)]

    def exceeded(self, requests: Requests) -> list[str]:
        """The resources of which there is too little even on the empty node."""
        return [name for name, amount in _asked(requests) if amount > self.whole(name)]

    def whole(self, name: str) -> Quantity:
        return self._all.get(name, _NOTHING)


def add(total: Requests, more: Requests, times: int = 1) -> None:
    """In place; `times` -1 takes away."""
    for name, amount in more.items():
        total[name] = total.get(name, _NOTHING) + amount * times


def _asked(requests: Requests) -> list[tuple[str, Quantity]]:
    asked = [(name, amount) for name, amount in requests.items() if amount > _NOTHING]
    return sorted(asked, key=lambda entry: (entry[0] != PODS, entry[0]))
