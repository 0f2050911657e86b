"""Reduces an object to the fields that its author set, so that it can be compared with a manifest. Pure."""

from __future__ import annotations

from trainwright.api.objects import Obj

_IDENTITY = ("name", "namespace")
_GROUPS = ("labels", "annotations")


def comparable(obj: Obj, manifest: Obj) -> Obj:
    """Return `obj` with only the labels and annotations that the manifest sets, and without fields that others manage.

    `spec.suspend` belongs to the queue unless the manifest sets it, as do runtime patches by managers that the manifest does not
    name.
    """
    desired, declared_metadata = manifest.get("spec") or {}, manifest["metadata"]
    metadata = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
    for group in _GROUPS:
        declared = declared_metadata.get(group) or {}
        kept = {name: value for name, value in (obj["metadata"].get(group) or {}).items() if name in declared}
        metadata |= {group: kept} if kept else {}
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status", "spec")}
    return {**rest, "metadata": metadata, "spec": _spec(obj.get("spec") or {}, desired)}


def _spec(spec: Obj, desired: Obj) -> Obj:
    spec = dict(spec)
    if "suspend" not in desired:
        spec.pop("suspend", None)
    managers = {patch.get("manager") for patch in desired.get("runtimePatches") or []}
    ours = [patch for patch in spec.pop("runtimePatches", None) or [] if patch.get("manager") in managers]
    patches = [{name: value for name, value in patch.items() if name != "time"} for patch in ours]
    return spec | ({"runtimePatches": patches} if patches else {})
