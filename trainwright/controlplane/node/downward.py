"""The downward API: fields of a pod and resources of its containers as text, for variables and files.

Sources: pkg/fieldpath, pkg/api/v1/resource and `podFieldSelectorRuntimeValue` of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import ceil

from trainwright.api.objects import Obj, annotations_of, labels_of, name_of, named, namespace_of, uid_of
from trainwright.api.quantities import parse_quantity

NODE_ADDRESS = "127.0.0.1"
Allocatable = Callable[[], Obj]
"""Returns the node's allocatable resources, read only where a container has no limit."""
_KEYED = re.compile(r"(?P<field>.+)\['(?P<key>.*)'\]", re.DOTALL)
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def field_text(pod: Obj, path: str) -> str:
    """Return the value of a fieldPath; labels and annotations that are not set are empty.

    Addresses are those of the pod's status. Raises ValueError, in the kubelet's words, for a path that does not exist.
    """
    if match := _KEYED.fullmatch(path):
        if match["field"] not in ("metadata.labels", "metadata.annotations"):
            raise ValueError(f"fieldPath {_go_quoted(match['field'])} does not support subscript")
        values = labels_of(pod) if match["field"] == "metadata.labels" else annotations_of(pod)
        return values.get(match["key"], "")
    if path not in _FIELDS:
        raise ValueError(f"unsupported fieldPath: {path}")
    return _FIELDS[path](pod)


def resource_text(pod: Obj, reference: Obj, allocatable: Allocatable, container: Obj | None = None) -> str:
    """Return the value of a resourceFieldRef: the amount divided by the divisor, rounded up.

    `container` is the one that refers to itself, without a containerName. A missing limit is the pod's, or what the node can give;
    a missing request is 0. Raises ValueError for an unknown container or resource.
    """
    if name := reference.get("containerName"):
        spec = pod["spec"]
        container = named(spec.get("containers"), name) or named(spec.get("initContainers"), name)
        if container is None:
            raise ValueError(f"container {name} not found")
    path = str(reference.get("resource") or "")
    group, _, resource = path.partition(".")
    if group not in ("limits", "requests") or not (resource in _RESOURCES or resource.startswith(_HUGE_PAGES)):
        raise ValueError(f"unsupported container resource : {path}")
    amount = (((container or {}).get("resources") or {}).get(group) or {}).get(resource, 0)
    if group == "limits" and resource in _RESOURCES and not parse_quantity(amount).value:
        of_pod: Obj = (pod["spec"].get("resources") or {}).get("limits") or {}
        amount = of_pod[resource] if resource in of_pod else allocatable().get(resource, 0)
    divisor = parse_quantity(reference.get("divisor") or 1).value or 1
    return str(ceil(Fraction(parse_quantity(amount).value) / Fraction(divisor)))  # decimals divide to 28 digits only


def _status(pod: Obj) -> Obj:
    return pod.get("status") or {}


def _addresses(status: Obj, list_field: str, item_field: str, single: str) -> list[str]:
    listed = [str(entry.get(item_field)) for entry in status.get(list_field) or [] if entry.get(item_field)]
    return listed or [str(status.get(single) or NODE_ADDRESS)]


def _pod_addresses(pod: Obj) -> list[str]:
    return _addresses(_status(pod), "podIPs", "ip", "podIP")


def _host_addresses(pod: Obj) -> list[str]:
    return _addresses(_status(pod), "hostIPs", "ip", "hostIP")


_FIELDS: dict[str, Callable[[Obj], str]] = {
    "metadata.name": name_of,
    "metadata.namespace": namespace_of,
    "metadata.uid": uid_of,
    "metadata.labels": lambda pod: _lines(labels_of(pod)),
    "metadata.annotations": lambda pod: _lines(annotations_of(pod)),
    "spec.nodeName": lambda pod: str(pod["spec"].get("nodeName") or ""),
    "spec.serviceAccountName": lambda pod: str(pod["spec"].get("serviceAccountName") or "default"),
    "status.hostIP": lambda pod: _host_addresses(pod)[0],
    "status.hostIPs": lambda pod: ",".join(_host_addresses(pod)),
    "status.podIP": lambda pod: _pod_addresses(pod)[0],
    "status.podIPs": lambda pod: ",".join(_pod_addresses(pod)),
}


def _lines(values: dict[str, str]) -> str:
    return "\n".join(f"{key}={_go_quoted(value)}" for key, value in sorted(values.items()))


def _go_quoted(text: str) -> str:
    """Quote like Go's `%q`: printable characters stay, others are escaped."""
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():  # as in Go, the only printable space is U+0020
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
