"""An object as the page shows it: without managed fields, and without the data of Secrets, which never leaves the server. Pure."""

from __future__ import annotations

from trainwright.api.objects import Obj

HIDDEN = "(hidden)"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with the whole object, which repeats the data of a Secret."""


def shown_object(obj: Obj) -> Obj:
    """Return a copy to show. The argument is not modified."""
    metadata = {field: value for field, value in (obj.get("metadata") or {}).items() if field != "managedFields"}
    shown = {**obj, "metadata": metadata}
    if obj.get("kind") != "Secret":
        return shown
    if metadata.get("annotations"):
        kept = {name: value for name, value in metadata["annotations"].items() if name != _LAST_APPLIED}
        metadata["annotations"] = kept
    for part in ("data", "stringData"):
        if isinstance(obj.get(part), dict):
            shown[part] = dict.fromkeys(obj[part], HIDDEN)
    return shown
