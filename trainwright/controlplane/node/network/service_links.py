"""Variables by which a container finds Services: those of Kubernetes, and those of Docker's links. Pure.

Sources: pkg/kubelet/envvars and `getServiceEnvVarMap` of Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainwright.api.objects import Obj, name_of, namespace_of

_HEADLESS = "None"
_KUBERNETES = ("kubernetes", 443)
"""The Service of the API server and the port in the names of its variables, which programs look for."""


def service_variables(services: Iterable[Obj], namespace: str, unassigned: str) -> dict[str, str]:
    """Return the variables of the Services of a namespace, without those that have no address of their own.

    `unassigned` is the address of Services to which no clusterIP was given: this cluster has no network that routes one.
    """
    variables: dict[str, str] = {}
    for service in sorted(services, key=name_of):
        spec = service.get("spec") or {}
        address = spec.get("clusterIP") or unassigned
        if (
            namespace_of(service) != namespace
            or address == _HEADLESS
            or spec.get("type") == "ExternalName"
            or not spec.get("ports")
        ):
            continue
        variables |= _variables(name_of(service), address, list(_numbered(spec["ports"])))
    return variables


def api_server_variables(host: str, port: int) -> dict[str, str]:
    """Return the variables of the Service `kubernetes`, with the address at which the API server really listens."""
    name, named_port = _KUBERNETES
    return _variables(name, host, [(named_port, port, "TCP", "https")])


def _numbered(ports: list[Obj]) -> Iterator[tuple[int, int, str, str]]:
    for port in ports:
        yield int(port["port"]), int(port["port"]), str(port.get("protocol") or "TCP"), str(port.get("name") or "")


def _variables(service: str, host: str, ports: list[tuple[int, int, str, str]]) -> dict[str, str]:
    """`ports` are `(number in the variable's name, number, protocol, name)`."""
    prefix = _variable_name(service)
    variables = {f"{prefix}_SERVICE_HOST": host, f"{prefix}_SERVICE_PORT": str(ports[0][1])}
    shown = f"[{host}]" if ":" in host else host
    for index, (shown_port, port, protocol, name) in enumerate(ports):
        if name:
            variables[f"{prefix}_SERVICE_PORT_{_variable_name(name)}"] = str(port)
        url = f"{protocol.lower()}://{shown}:{port}"
        if index == 0:
            variables[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{shown_port}_{protocol.upper()}"
        variables |= {link: url, f"{link}_PROTO": protocol.lower(), f"{link}_PORT": str(port), f"{link}_ADDR": host}
    return variables


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
