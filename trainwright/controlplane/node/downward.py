"""The downward API: fields of a pod as text, for its variables and files."""

from __future__ import annotations

import re

from trainwright.api.objects import Obj, annotations_of, labels_of, name_of, namespace_of, uid_of

_KEYED = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")
NODE_ADDRESS = "127.0.0.1"


def field_text(pod: Obj, path: str) -> str:
    """Return the value of a fieldPath. Raises ValueError, which names the path, if it is not supported."""
    if match := _KEYED.match(path):
        values = labels_of(pod) if match[1] == "labels" else annotations_of(pod)
        return values.get(match[2], "")
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    simple = {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace_of(pod),
        "metadata.uid": uid_of(pod),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": status.get("podIP") or NODE_ADDRESS,
        "status.podIPs": status.get("podIP") or NODE_ADDRESS,
        "status.hostIP": NODE_ADDRESS,
        "metadata.labels": _lines(labels_of(pod)),
        "metadata.annotations": _lines(annotations_of(pod)),
    }
    if path not in simple:
        raise ValueError(f"fieldPath {path!r} is not supported; supported: {', '.join(sorted(simple))}, metadata.labels['KEY']")
    return str(simple[path])


def _lines(values: dict[str, str]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(values.items()))
