"""What one pod of a template asks of a scheduler: the sum that gang scheduling reserves.

Rules of Kubernetes' own pod accounting: containers and sidecars add up, init containers count where they need more, pod-level
amounts replace the sum, overhead comes on top. Limits without requests count as nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.objects import Obj
from trainwright.api.quantities import Quantity, parse_quantity

Requests = dict[str, Quantity]


def pod_requests(pod_spec: Obj) -> Requests:
    """The effective requests of one pod."""
    total: Requests = {}
    for container in pod_spec.get("containers") or []:
        _add(total, _requests(container.get("resources")))
    most_while_starting: Requests = {}
    sidecars: Requests = {}
    for container in pod_spec.get("initContainers") or []:
        wanted = _requests(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            _add(total, wanted)
            _add(sidecars, wanted)
            _raise_to(most_while_starting, sidecars)
        else:
            _add(wanted, sidecars)
            _raise_to(most_while_starting, wanted)
    _raise_to(total, most_while_starting)
    for name, amount in _requests(pod_spec.get("resources")).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    _add(total, {name: parse_quantity(amount) for name, amount in (pod_spec.get("overhead") or {}).items()})
    return total


def template_requests(pod_spec: Obj) -> Requests:
    """What a pod of a template will ask for, once the API server has taken its limits for requests where those are missing."""
    filled = {**pod_spec}
    for group in ("containers", "initContainers"):
        if pod_spec.get(group):
            filled[group] = [{**container, "resources": _with_requests(container)} for container in pod_spec[group]]
    return pod_requests(filled)


def summed(parts: Iterable[tuple[int, Requests]]) -> dict[str, str]:
    """So many pods of each kind, added up, in canonical form."""
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


def _raise_to(total: Requests, least: Requests) -> None:
    for name, amount in least.items():
        if name not in total or amount > total[name]:
            total[name] = amount
