"""The addresses behind the names of Services: those of the pods that a Service selects. Pure.

A cluster's DNS answers so for headless Services. Others have one address there, from which a proxy leads to the pods; on this node
nothing translates ports, so that their pods are reached directly, at the ports that they listen on.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.objects import Obj, labels_of, name_of, namespace_of
from trainwright.controlplane.node.network.hosts_file import ServiceName


def service_names(services: Iterable[Obj], pods: Iterable[tuple[Obj, str]]) -> list[ServiceName]:
    """Return a name for each pod of each Service, in the order of the Services. `pods` have their addresses with them.

    Services without a selector have no pods, and an ExternalName leads out of the cluster.
    """
    known = [(namespace_of(pod), labels_of(pod), address) for pod, address in pods]
    return [
        (namespace_of(service), name_of(service), address)
        for service in services
        for namespace, labels, address in known
        if namespace == namespace_of(service) and selects(service, labels)
    ]


def selects(service: Obj, labels: dict[str, str]) -> bool:
    """Whether a Service selects a pod of its namespace with these labels."""
    spec = service.get("spec") or {}
    selector = spec.get("selector") or {}
    if spec.get("type") == "ExternalName" or not selector:
        return False
    return all(labels.get(key) == value for key, value in selector.items())
