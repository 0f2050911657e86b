"""What of an object is its author's wish, so that two can be compared: without status and without the marks of others. Pure."""

from __future__ import annotations

from trainwright.api.objects import Obj

_IDENTITY = ("name", "namespace")
_GROUPS = ("labels", "annotations")


def comparable(obj: Obj, manifest: Obj) -> Obj:
    """`obj` as far as the manifest speaks of it: its own labels and annotations, and a spec in which only its author had a say.

    Whether a job is suspended is its queue's affair where the manifest does not say it, and so are the patches of the runtime by
    managers that it does not name.
    """
    wish, mine = manifest.get("spec") or {}, manifest["metadata"]
    metadata = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
    for group in _GROUPS:
        kept = {name: value for name, value in (obj["metadata"].get(group) or {}).items() if name in (mine.get(group) or {})}
        metadata |= {group: kept} if kept else {}
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status", "spec")}
    return {**rest, "metadata": metadata, "spec": _spec(obj.get("spec") or {}, wish)}


def _spec(spec: Obj, wish: Obj) -> Obj:
    spec = dict(spec)
    if "suspend" not in wish:
        spec.pop("suspend", None)
    managers = {patch.get("manager") for patch in wish.get("runtimePatches") or []}
    patches = [_without_time(patch) for patch in spec.pop("runtimePatches", None) or [] if patch.get("manager") in managers]
    return spec | ({"runtimePatches": patches} if patches else {})


def _without_time(patch: Obj) -> Obj:
    return {name: value for name, value in patch.items() if name != "time"}
