"""The QoS class of a pod. Source: `ComputePodQOS` of Kubernetes.

Works on pods that are not validated yet: what is no amount does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity

_COMPUTE = ("cpu", "memory")
"""Other resources do not count."""
_Amounts = dict[str, Quantity]


def qos_class(spec: Obj) -> str:
    """Return Guaranteed, Burstable or BestEffort. Resources of the pod as a whole count instead of those of its containers."""
    containers = [_as_dict(entry) for group in ("containers", "initContainers") for entry in _list(spec.get(group))]
    own, whole = [_as_dict(container.get("resources")) for container in containers], _as_dict(spec.get("resources"))
    limits = [_positive(_as_dict(part.get("limits"))) for part in ([whole] if whole else own)]
    if whole:
        asked = {name for part in own for name in _positive(_requests(part))}
        requests = [_positive(_requests(whole, without=asked))]
    else:
        requests = [_positive(_requests(part)) for part in own]
    most, least = _sum(limits), _sum(requests)
    if not most and not least:
        return "BestEffort"
    is_limited = all(len(part) == len(_COMPUTE) for part in limits)
    return "Guaranteed" if is_limited and most == least else "Burstable"


def _requests(resources: Obj, without: Iterable[str] = ()) -> Obj:
    """The requests; by default, what is limited is requested up to the limit."""
    defaults = {name: amount for name, amount in _as_dict(resources.get("limits")).items() if name not in without}
    return {**defaults, **_as_dict(resources.get("requests"))}


def _positive(amounts: Obj) -> _Amounts:
    found: _Amounts = {}
    for name, text in amounts.items():
        if name not in _COMPUTE:
            continue
        try:
            amount = parse_quantity(text)
        except (ValueError, ArithmeticError, TypeError):
            continue
        if amount.value > 0:
            found[name] = amount
    return found


def _sum(parts: Iterable[_Amounts]) -> _Amounts:
    total: _Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _as_dict(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
