"""The effective resource requests of a pod, which gang scheduling reserves.

Source: Kubernetes' pod accounting. Containers and sidecars are added up, init containers count if they need more, pod-level
requests replace the sum, overhead is added. Limits without requests do not count.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity

Requests = dict[str, Quantity]


def pod_requests(pod_spec: Obj) -> Requests:
    """Return the effective requests of a pod."""
    total: Requests = {}
    for container in pod_spec.get("containers") or []:
        _add(total, _requests(container.get("resources")))
    init_maximum: Requests = {}
    sidecars: Requests = {}
    for container in pod_spec.get("initContainers") or []:
        requested = _requests(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            _add(total, requested)
            _add(sidecars, requested)
            _raise_to(init_maximum, sidecars)
        else:
            _add(requested, sidecars)
            _raise_to(init_maximum, requested)
    _raise_to(total, init_maximum)
    for name, amount in _requests(pod_spec.get("resources")).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    _add(total, {name: parse_quantity(amount) for name, amount in (pod_spec.get("overhead") or {}).items()})
    return total


def template_requests(pod_spec: Obj) -> Requests:
    """Return the requests of a pod of this template after the API server has defaulted missing requests to the limits."""
    filled = {**pod_spec}
    for group in ("containers", "initContainers"):
        if pod_spec.get(group):
            filled[group] = [{**container, "resources": _with_requests(container)} for container in pod_spec[group]]
    return pod_requests(filled)


def total_requests(parts: Iterable[tuple[int, Requests]]) -> dict[str, str]:
    """Return the sum of (number of pods, requests of one pod) pairs, in canonical form."""
    total: Requests = {}
    for count, requests in parts:
        _add(total, {name: amount * count for name, amount in requests.items()})
    return {name: str(amount) for name, amount in total.items()}


def _with_requests(container: Obj) -> Obj:
    resources = container.get("resources") or {}
    return {**resources, "requests": {**(resources.get("limits") or {}), **(resources.get("requests") or {})}}


def _requests(resources: Obj | None) -> Requests:
    return {name: parse_quantity(amount) for name, amount in ((resources or {}).get("requests") or {}).items()}


def _add(total: Requests, more: Requests) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: Requests, minimum: Requests) -> None:
    for name, amount in minimum.items():
        if name not in total or amount > total[name]:
            total[name] = amount
