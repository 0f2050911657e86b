"""Functions on Kubernetes objects as plain dicts: identity, metadata and ownership.

Unknown fields must survive a read, a change and a write, which dicts do and generated classes do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import orjson

Obj = dict[str, Any]
JsonT = TypeVar("JsonT")
DEFAULT_ACCOUNT = "default"
"""The service account that every namespace has, for pods that name none."""


def copy_of(value: JsonT) -> JsonT:
    """A deep copy of a JSON-shaped value (about ten times faster than `copy.deepcopy`)."""
    copied: JsonT = orjson.loads(orjson.dumps(value))
    return copied


def name_of(obj: Obj) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def namespace_of(obj: Obj) -> str:
    """The object's namespace, empty for cluster-scoped objects."""
    return str((obj.get("metadata") or {}).get("namespace", ""))


def uid_of(obj: Obj) -> str:
    return str((obj.get("metadata") or {}).get("uid", ""))


def account_of(pod: Obj) -> str:
    """The name of the pod's service account."""
    return str((pod.get("spec") or {}).get("serviceAccountName") or DEFAULT_ACCOUNT)


def labels_of(obj: Obj) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}


def generation_of(obj: Obj) -> int:
    """Return the generation of the spec; 0 if the object has none yet."""
    return int(obj["metadata"].get("generation") or 0)


def is_deleting(obj: Obj) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def described(obj: Obj) -> str:
    """`Kind namespace/name`, for messages."""
    namespace = namespace_of(obj)
    return f"{obj.get('kind', 'object')} {namespace + '/' if namespace else ''}{name_of(obj)}"


def owner_reference(owner: Obj) -> Obj:
    """Return a controller owner reference, by which the garbage collector deletes a child with its owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Obj) -> Obj | None:
    """Return the owner reference with `controller: true`, or None."""
    for reference in owners_of(obj):
        if reference.get("controller"):
            return reference
    return None


def owners_of(obj: Obj) -> list[Obj]:
    return (obj.get("metadata") or {}).get("ownerReferences") or []


def is_controlled_by(obj: Obj, owner: Obj) -> bool:
    """Whether `owner` is the controller of `obj`, by UID, because a successor may have the same name."""
    reference = controller_of(obj)
    return reference is not None and reference.get("uid") == uid_of(owner)


def named(items: Iterable[Obj] | None, name: str) -> Obj | None:
    """Return the element with that `name` (of containers, env, volumes, replicated jobs), or None."""
    for item in items or []:
        if item.get("name") == name:
            return item
    return None
