"""The metadata that the server owns: identity, names, versions, generation; and the checks of what clients write into the rest.

Functions on dicts that read neither clock nor random numbers; those come in as arguments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import BadRequest, Invalid, Problem, Undecodable
from trainwright.api.kinds import EVENT, Kind
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.api.rules.metadata import changed_metadata_problems, metadata_problems
from trainwright.controlplane.apiserver.admission.kind_mismatch import of_another_kind
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.wire.api_errors import conflict, details_of, modified
from trainwright.controlplane.apiserver.wire.limits import check_depth

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What a generated suffix is made of: no vowels, so no words; none of the digits that look like letters."""
SUFFIX_LENGTH = 5

_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
"""What an update cannot change."""
_OTHER_UID = (
    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
    "UID in precondition: {}, UID in object meta: {}"
)
_SAID = {"kind": "Kind", "apiVersion": "apiVersion"}
_MISSING_VERSION = (None, "", "0")


def decoded(kind: Kind, obj: Any, *, custom: bool, old: Record | None = None) -> Obj:
    """A copy of a client's object, two levels deep, that is certain to be of `kind` and to have metadata of the right types.

    Built-in kinds may leave apiVersion and kind out; custom resources may not. `old` is what it is to replace.
    Raises BadRequest, Undecodable, Invalid for a custom resource of another kind.
    """
    if not isinstance(obj, dict):
        why = "couldn't get version/kind; json parse error: it is no JSON object"
        raise BadRequest(f"the object provided is unrecognized (must be of type {kind.kind}): {why}")
    for name in ("kind", "apiVersion"):
        if not obj.get(name) and custom:
            raise BadRequest(
                f"the object provided is unrecognized (must be of type {kind.kind}): Object '{_SAID[name]}' is missing"
            )
    found = (obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind)
    if found != (kind.api_version, kind.kind):
        raise of_another_kind(kind, obj, custom=custom, old=old.object if old else None)
    metadata = obj.get("metadata") or {}
    wrong = next(_wrong_types(metadata), None)
    if wrong:
        raise Undecodable(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong}')
    kept = {key: value for key, value in metadata.items() if key != "managedFields" and value not in (None, {}, [])}
    given = {key: value for key, value in obj.items() if value is not None}
    check_depth({**given, "metadata": kept})
    return {**given, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept}


def _wrong_types(metadata: Any) -> Iterator[str]:
    """In the words of Go's reader of JSON."""
    if not isinstance(metadata, dict):
        yield _not_read(metadata, "", "v1.ObjectMeta")
        return
    for name in ("name", "namespace", "generateName", "resourceVersion", "uid"):
        if not isinstance(metadata.get(name, ""), str | None):
            yield _not_read(metadata[name], f".{name}", "string")
    for name in ("labels", "annotations"):
        entries = metadata.get(name) or {}
        if not isinstance(entries, dict):
            yield _not_read(entries, f".{name}", "map[string]string")
        else:
            yield from (_not_read(value, f".{name}", "string") for value in entries.values() if not isinstance(value, str))
    for name, sort, go in (("finalizers", str, "string"), ("ownerReferences", dict, "v1.OwnerReference")):
        entries = metadata.get(name) or []
        if not isinstance(entries, list):
            yield _not_read(entries, f".{name}", f"[]{go}")
        else:
            yield from (_not_read(entry, f".{name}", go) for entry in entries if not isinstance(entry, sort))


def _not_read(value: Any, place: str, wanted: str) -> str:
    sorts = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return f"json: cannot unmarshal {sorts.get(type(value), 'null')} into Go struct field ObjectMeta.metadata{place} of type {wanted}"


def place(kind: Kind, obj: Obj, namespace: str, name: str | None = None) -> None:
    """Put an object, in place, where the request puts it. Raises BadRequest when the object says otherwise."""
    metadata = obj["metadata"]
    if kind.namespaced:
        if not namespace:
            raise BadRequest(f"{kind.resource} live in a namespace; none was given")
        if metadata.setdefault("namespace", namespace) != namespace:
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)
    if name is None:
        return
    if not metadata.get("name"):
        raise BadRequest(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if metadata["name"] != name:
        raise BadRequest(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")


def name_new(obj: Obj, suffix: str) -> None:
    """Give a new object, in place, its generated name where it asks for one."""
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"][: 63 - SUFFIX_LENGTH] + suffix


def check(kind: Kind, obj: Obj, *, changed: bool = False) -> None:
    """The rules of metadata that hold for every kind. Raises Invalid."""
    find = changed_metadata_problems if changed else metadata_problems
    problems = list(find(kind, obj["metadata"], custom=strategy_of(kind).custom))
    if problems:
        raise Invalid.of(kind.kind, name_of(obj), problems, kind.group)


def start(obj: Obj, uid: str, now: str, *, generation: bool) -> None:
    """The server's part of a new object's metadata, in place."""
    metadata = obj["metadata"]
    for name in (*_OWNED, "resourceVersion"):
        if name != "generation" or generation:
            metadata.pop(name, None)
    metadata |= {"uid": uid, "creationTimestamp": now}
    if generation:
        metadata["generation"] = 1


def carry_over(new: Obj, old: Obj) -> None:
    """The server's part of a changed object's metadata, in place: as it was."""
    metadata, before = new["metadata"], old["metadata"]
    for name in (*_OWNED, "resourceVersion"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)


def check_version(kind: Kind, obj: Obj, old: Obj, *, required: bool) -> None:
    """Whether a change was made to what is stored. Raises Conflict for another version or UID, Invalid for a missing one."""
    metadata = obj["metadata"]
    version, name = metadata.get("resourceVersion"), name_of(old)
    if version in _MISSING_VERSION:
        if required:
            problem = Problem("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise Invalid(f'{kind.resource} "{name}" is invalid: {problem}', problems=[problem], details=details_of(kind, name))
    elif version != old["metadata"]["resourceVersion"]:
        raise modified(kind, name)
    if metadata.get("uid") and metadata["uid"] != uid_of(old):
        key = filter(None, ("/registry", kind.group, kind.plural, old["metadata"].get("namespace"), name))
        raise conflict(kind, name, _OTHER_UID.format("/".join(key), metadata["uid"], uid_of(old)))


def check_identity(kind: Kind, new: Obj, old: Obj) -> None:
    """Raises Invalid for a patch that would make another object of this one."""
    uid = new["metadata"].get("uid")
    if uid and uid != uid_of(old):
        _fixed(kind, new, "uid", uid)


def check_deletion(kind: Kind, new: Obj, old: Obj) -> None:
    """Raises Invalid for a write that pretends a deletion; only a DELETE deletes."""
    wanted = new["metadata"].get("deletionTimestamp")
    if wanted and "deletionTimestamp" not in old["metadata"]:
        _fixed(kind, new, "deletionTimestamp", wanted)


def _fixed(kind: Kind, obj: Obj, name: str, value: str) -> None:
    # Asked for all kinds and once more for this one, and said twice.
    problem = Problem(f"metadata.{name}", f'Invalid value: "{value}": field is immutable')
    raise Invalid.of(kind.kind, name_of(obj), [problem] * (1 if kind == EVENT else 2), kind.group)


def check_finalizers(kind: Kind, new: Obj, old: Obj) -> None:
    """Once an object is being deleted nobody can hold it any longer than it is held already. Raises Invalid."""
    if "deletionTimestamp" not in old["metadata"]:
        return
    added = set(new["metadata"].get("finalizers") or []) - set(old["metadata"].get("finalizers") or [])
    if added:
        message = (
            f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
        )
        raise Invalid.of(kind.kind, name_of(new), [Problem("metadata.finalizers", message, "FieldValueForbidden")], kind.group)


def count_generation(new: Obj, old: Obj) -> None:
    """Raise the generation, in place, when anything outside of metadata and status has changed."""
    if any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - {"metadata", "status"}):
        raise_generation(new)


def raise_generation(obj: Obj) -> None:
    obj["metadata"]["generation"] = (obj["metadata"].get("generation") or 0) + 1
