"""Server-managed metadata (identity, names, resource version, generation) and validation of client-provided metadata.

Functions on dicts; time and random values are arguments. For built-in kinds, decoding fails with the kind that was sent if it differs
from that of the request path; custom resources are validated as the kind of the path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import ApiError, BadRequest, Invalid, Problem, Undecodable
from trainwright.api.generated_names import generated_name
from trainwright.api.kinds import EVENT, Kind
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.api.rules.metadata import changed_metadata_problems, metadata_problems
from trainwright.api.schema.check import findings
from trainwright.controlplane.apiserver.resources.registry import Strategy, strategy_of
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.wire.api_errors import conflict_error, modified_error, status_details
from trainwright.controlplane.apiserver.wire.bodies import check_depth

_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
"""Fields that an update cannot change."""
_OTHER_UID = (
    "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
    "UID in precondition: {}, UID in object meta: {}"
)
_SAID = {"kind": "Kind", "apiVersion": "apiVersion"}
_MISSING_VERSION = (None, "", "0")
_BUILT_IN_KINDS = {(kind.api_version, kind.kind) for kind in kinds.ALL}


def decode_object(kind: Kind, obj: Any, *, custom: bool, old: Record | None = None) -> Obj:
    """Copy a client's object, two levels deep, and check its kind and the types of its metadata.

    Built-in kinds may omit apiVersion and kind; custom resources may not. `old` is the object to be replaced.
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
        raise kind_mismatch_error(kind, obj, custom=custom, old=old.object if old else None)
    metadata = obj.get("metadata") or {}
    wrong = next(_wrong_types(metadata), None)
    if wrong:
        raise Undecodable(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong}')
    kept = {key: value for key, value in metadata.items() if key != "managedFields" and value not in (None, {}, [])}
    given = {key: value for key, value in obj.items() if value is not None}
    check_depth({**given, "metadata": kept})
    return {**given, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept}


def _wrong_types(metadata: Any) -> Iterator[str]:
    """Type errors with the messages of Go's JSON decoder."""
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


def set_identity(kind: Kind, obj: Obj, namespace: str, name: str | None = None) -> None:
    """Check namespace and name against the request, setting a missing namespace in place. Raises BadRequest."""
    metadata = obj["metadata"]
    if kind.namespaced:
        if not namespace:
            raise BadRequest(f"{kind.resource} are namespaced: a namespace is required")
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


def generate_name(obj: Obj, suffix: str) -> None:
    """Generate the name of a new object from `generateName`, in place."""
    metadata = obj["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"], suffix)


def validate(kind: Kind, obj: Obj, *, changed: bool = False) -> None:
    """Validate the metadata rules common to all kinds. Raises Invalid."""
    find = changed_metadata_problems if changed else metadata_problems
    problems = list(find(kind, obj["metadata"], custom=strategy_of(kind).custom))
    if problems:
        raise Invalid.of(kind.kind, name_of(obj), problems, kind.group)


def initialize(obj: Obj, uid: str, now: str, *, generation: bool) -> None:
    """Set the server-managed metadata of a new object, in place."""
    metadata = obj["metadata"]
    for name in (*_OWNED, "resourceVersion"):
        if name != "generation" or generation:
            metadata.pop(name, None)
    metadata |= {"uid": uid, "creationTimestamp": now}
    if generation:
        metadata["generation"] = 1


def of_status_write(strategy: Strategy, new: Obj, old: Obj) -> Obj:
    """Return the metadata after a write of the status."""
    kept = dict(old["metadata"])
    for part in strategy.status_metadata:
        kept.pop(part, None)
        if value := new["metadata"].get(part):
            kept[part] = value
    return kept


def keep_server_fields(new: Obj, old: Obj) -> None:
    """Copy the server-managed metadata of the old object, in place."""
    metadata, before = new["metadata"], old["metadata"]
    for name in (*_OWNED, "resourceVersion"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)


def check_version(kind: Kind, obj: Obj, old: Obj, *, required: bool) -> None:
    """Check resourceVersion and UID preconditions. Raises Conflict for a mismatch, Invalid for a missing required version."""
    metadata = obj["metadata"]
    version, name = metadata.get("resourceVersion"), name_of(old)
    if version in _MISSING_VERSION:
        if required:
            problem = Problem("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise Invalid(
                f'{kind.resource} "{name}" is invalid: {problem}', problems=[problem], details=status_details(kind, name)
            )
    elif version != old["metadata"]["resourceVersion"]:
        raise modified_error(kind, name)
    if metadata.get("uid") and metadata["uid"] != uid_of(old):
        key = filter(None, ("/registry", kind.group, kind.plural, old["metadata"].get("namespace"), name))
        raise conflict_error(kind, name, _OTHER_UID.format("/".join(key), metadata["uid"], uid_of(old)))


def check_identity(kind: Kind, new: Obj, old: Obj) -> None:
    """Raises Invalid if a patch changes the UID."""
    uid = new["metadata"].get("uid")
    if uid and uid != uid_of(old):
        _fixed(kind, new, "uid", uid)


def _fixed(kind: Kind, obj: Obj, name: str, value: str) -> None:
    # kube-apiserver validates this twice, generically and per kind, and reports it twice, except for Events.
    problem = Problem(f"metadata.{name}", f'Invalid value: "{value}": field is immutable')
    raise Invalid.of(kind.kind, name_of(obj), [problem] * (1 if kind == EVENT else 2), kind.group)


def check_deletion(kind: Kind, new: Obj, old: Obj) -> None:
    """Raises Invalid if a write sets deletionTimestamp; only a DELETE may."""
    wanted = new["metadata"].get("deletionTimestamp")
    if wanted and "deletionTimestamp" not in old["metadata"]:
        _fixed(kind, new, "deletionTimestamp", wanted)


def check_finalizers(kind: Kind, new: Obj, old: Obj) -> None:
    """Raises Invalid if finalizers are added to an object that is being deleted."""
    if "deletionTimestamp" not in old["metadata"]:
        return
    added = set(new["metadata"].get("finalizers") or []) - set(old["metadata"].get("finalizers") or [])
    if added:
        message = (
            f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
        )
        raise Invalid.of(kind.kind, name_of(new), [Problem("metadata.finalizers", message, "FieldValueForbidden")], kind.group)


def update_generation(new: Obj, old: Obj) -> None:
    """Increment the generation, in place, if anything outside metadata and status has changed."""
    if any(new.get(key) != old.get(key) for key in (new.keys() | old.keys()) - {"metadata", "status"}):
        increment_generation(new)


def increment_generation(obj: Obj) -> None:
    obj["metadata"]["generation"] = (obj["metadata"].get("generation") or 0) + 1


def kind_mismatch_error(kind: Kind, obj: Obj, *, custom: bool, old: Obj | None) -> ApiError:
    """The error for an object with another apiVersion or kind; `old` is the object that it would replace."""
    api_version, name = str(obj.get("apiVersion") or kind.api_version), str(obj.get("kind") or kind.kind)
    if not custom:
        version = api_version.rpartition("/")[2]
        why = _unread_kind(kind, obj, api_version, name)
        return Undecodable(f'{name} in version "{version}" cannot be handled as a {kind.kind}: {why}')
    if api_version != kind.api_version:
        return BadRequest(
            f"the API version in the data ({api_version}) does not match the expected API version ({kind.api_version})"
        )
    problems = [Problem("kind", f'Invalid value: "{name}": must be {kind.kind}')]
    # Defaults are not applied to an object of another kind, so fields that were defaulted in the stored object are missing here.
    if kind.kind in ADMISSION_SPECS:
        problems += findings(ADMISSION_SPECS[kind.kind].schema, obj, old).rules
    metadata = obj.get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else ""
    return Invalid.of(name, str(named or ""), problems, kind.group)


def _unread_kind(kind: Kind, obj: Obj, api_version: str, name: str) -> str:
    if (api_version, name) not in _BUILT_IN_KINDS:
        return f'no kind "{name}" is registered for version "{api_version}" in scheme "built-in"'
    if name == kinds.SECRET.kind and isinstance(obj.get("data"), dict):
        faults = [at for value in obj["data"].values() if (at := _corrupt_at(value)) is not None]
        if faults:
            return f"illegal base64 data at input byte {faults[0]}"
    package = kind.group.partition(".")[0] or "core"
    return f"converting ({api_version.rpartition('/')[2]}.{name}) to ({package}.{kind.kind}): unknown conversion"


def _corrupt_at(value: Any) -> int | None:
    """The index of the first byte that is not valid base64; None if the value is valid."""
    text = str(value)
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
        return next((at for at, letter in enumerate(text) if letter not in alphabet), len(text) - len(text) % 4)
    return None
