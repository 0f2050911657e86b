"""Inserts items into lists: the first match is replaced in place, otherwise the item is appended.

Match keys as in Trainer: variables and volumes by name, mounts by mountPath, ports by number or by name.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.api.objects import Obj
from trainwright.api.quantities import canonical


def upsert(items: list[Obj], item: Obj, key: str) -> None:
    """Replace the first element with the same `key`, or append."""
    for index, existing in enumerate(items):
        if existing.get(key) == item.get(key):
            items[index] = item
            return
    items.append(item)


def upsert_env(container: Obj, variables: Iterable[Obj]) -> None:
    """Upsert variables by name. The schema guarantees unique names."""
    positions: dict[str, int] | None = None
    for variable in variables:
        env = container.setdefault("env", [])
        if positions is None:
            positions = {present["name"]: index for index, present in enumerate(env)}
        name = variable["name"]
        if name in positions:
            env[positions[name]] = variable
        else:
            positions[name] = len(env)
            env.append(variable)


def upsert_volume(pod_spec: Obj, volume: Obj) -> None:
    upsert(pod_spec.setdefault("volumes", []), volume, "name")


def upsert_mount(container: Obj, mount: Obj) -> None:
    upsert(container.setdefault("volumeMounts", []), mount, "mountPath")


def upsert_port(container: Obj, port: Obj) -> None:
    """Upsert a port. Ports match by number or by name; two missing names match too, as in Trainer."""
    ports = container.setdefault("ports", [])
    for index, existing in enumerate(ports):
        if existing.get("containerPort") == port.get("containerPort") or existing.get("name") == port.get("name"):
            ports[index] = port
            return
    ports.append(port)


def trainer_env(variables: Iterable[Obj] | None) -> list[Obj]:
    """Convert a TrainJob's variables like Trainer: `valueFrom` takes precedence, references have exactly their known fields."""
    return [_variable(variable) for variable in variables or []]


KNOWN_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")


def _variable(variable: Obj) -> Obj:
    source = variable.get("valueFrom")
    if not source:
        return {"name": variable["name"], "value": variable.get("value") or ""}
    kept: Obj = {}
    if field := source.get("fieldRef"):
        kept["fieldRef"] = {"fieldPath": field.get("fieldPath", "")}
    if resource := source.get("resourceFieldRef"):
        divisor = canonical(resource.get("divisor") or "0")
        names = {name: resource.get(name) or "" for name in ("containerName", "resource")}
        kept["resourceFieldRef"] = names | {"divisor": divisor}
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if key := source.get(kind):
            kept[kind] = {name: key.get(name) or "" for name in ("key", "name")}
            if key.get("optional") is not None:
                kept[kind]["optional"] = key["optional"]
    return {"name": variable["name"], "valueFrom": kept}
