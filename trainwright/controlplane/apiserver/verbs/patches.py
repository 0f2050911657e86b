"""Applies JSON, merge and strategic merge patches and configurations to a stored object.

Server-side apply merges a configuration, which is validated, into the live object and updates managed fields.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson

from trainwright.api.errors import ApiError, BadRequest, Invalid, Problem, Undecodable, UnsupportedMediaType
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, name_of
from trainwright.api.patching.json_patch import PatchFailed, apply_json_patch, merge
from trainwright.api.patching.strategic_merge import BadDirective, in_go, strategic_merge
from trainwright.api.schema.types import Schema
from trainwright.controlplane.apiserver.managed_fields.field_diff import configuration_errors
from trainwright.controlplane.apiserver.managed_fields.managed_writes import (
    NO_MANAGERS,
    applier,
    schema_of,
    status_of,
    without_status,
)
from trainwright.controlplane.apiserver.managed_fields.managers import (
    ManagedFields,
    check_config,
    fields_to_take_over,
    update_last_applied,
)
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.verbs import metadata
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter, Result
from trainwright.controlplane.apiserver.wire.api_errors import UnknownReasonError, conflict_error
from trainwright.controlplane.apiserver.wire.bodies import BODY_LIMIT, check_operations
from trainwright.controlplane.apiserver.wire.media import APPLY, JSON_PATCH, MERGE, STRATEGIC, UNSUPPORTED_MEDIA_TYPE
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

_REJECTED = "the server rejected our request due to an error in our request"
_CUSTOM = (JSON_PATCH, MERGE, APPLY)
_BUILT_IN = (*_CUSTOM, STRATEGIC)


def undecodable_error(error: Undecodable, kind: Kind, changed: Obj, patch: Any, media_type: str) -> Undecodable | Invalid:
    """The error for a patch whose result cannot be decoded: the decoding error, rephrased for the patch."""
    _, known, why = error.message.partition(f" cannot be handled as a {kind.kind}: ")
    if not known:
        return error
    shown = in_go(patch) if media_type == STRATEGIC else orjson.dumps(changed).decode()
    quoted = orjson.dumps(shown).decode()
    problem = Problem("patch", f"Invalid value: {quoted}: {why}")
    return Invalid(f' "" is invalid: {problem}', problems=[problem])


def check_media_type(strategy: Strategy, media_type: str) -> None:
    """Raises UnsupportedMediaType if the kind does not support this type of patch."""
    if media_type in (_CUSTOM if strategy.custom else _BUILT_IN):
        return
    if strategy.custom:
        accepted = ", ".join(_CUSTOM)
        raise UnsupportedMediaType(f"the body of the request was in an unknown format - accepted media types include: {accepted}")
    raise UnsupportedMediaType(UNSUPPORTED_MEDIA_TYPE)


def parse_configuration(kind: Kind, patch: Any, schema: Schema) -> Obj:
    """Validate an apply configuration. Raises BadRequest, and ApiError for unknown fields."""
    if not isinstance(patch, dict) or not isinstance(patch.get("metadata") or {}, dict):
        raise BadRequest("error decoding YAML: an object was expected")
    check_config(patch, kind.api_version)
    metadata = patch.get("metadata") or {}
    if errors := list(configuration_errors(schema, patch)):
        name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        text = errors[0] if len(errors) == 1 else "errors:" + "".join(f"\n  {line}" for line in errors)
        raise UnknownReasonError(
            f"failed to create typed patch object ({name}; {kind.group}/{kind.version}, Kind={kind.kind}): {text}"
        )
    return {**patch, "metadata": metadata}


def apply_patch(strategy: Strategy, stored: Obj, patch: Any, media_type: str) -> Obj:
    """Apply a patch to a copy of the stored object. Raises BadRequest, Invalid."""
    if media_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise BadRequest("error decoding patch: a JSON patch is a list of operations")
        check_operations(patch)
        try:
            result = apply_json_patch(stored, patch, copied_at_most=BODY_LIMIT)
        except PatchFailed as error:
            raise _Rejected(_REJECTED) from error
    elif not isinstance(patch, dict):
        raise BadRequest(f"error decoding patch: an object was expected, not {type(patch).__name__}")
    elif media_type == STRATEGIC:
        try:
            result = strategic_merge(stored, patch, schema_of(strategy.kind))
        except BadDirective as error:
            raise BadRequest(str(error)) from error
        except ValueError as error:
            raise ApiError(str(error)) from error
        # The kind of the stored object is known: a patch cannot change it.
        result |= {name: stored[name] for name in ("apiVersion", "kind")}
    else:
        result = merge(stored, patch)
    if not isinstance(result, dict):
        raise Invalid("the patch leaves no object")
    return result


class _Rejected(Invalid):
    """A JSON patch that cannot be applied; kube-apiserver does not report the reason."""

    def status(self) -> Obj:
        return {**super().status(), "details": {}}


def apply_new(writer: ObjectWriter, strategy: Strategy, namespace: str, name: str, patch: Any, options: WriteOptions) -> Result:
    """Create an object from a configuration. Raises Conflict if it sets metadata.uid."""
    kind = strategy.kind
    config = parse_configuration(kind, patch, schema_of(kind))
    new = metadata.decode_object(kind, config, custom=strategy.custom)
    new["metadata"].setdefault("name", name)
    metadata.set_identity(kind, new, namespace, name)
    if new["metadata"].get("uid"):
        raise conflict_error(
            strategy.kind, name, "uid mismatch: the provided object specified a uid, and no existing object was found"
        )
    new["metadata"].pop("resourceVersion", None)
    config = without_status(kind, config)
    _, owners = NO_MANAGERS.applied(schema_of(kind), {"metadata": {}}, config, applier(kind, options), writer.now())
    return writer.create(strategy, new, options, owners, applied=True)


def apply(writer: ObjectWriter, strategy: Strategy, namespace: str, old: Record, patch: Any, options: WriteOptions) -> Result:
    """Apply a configuration to an existing object. Raises Conflict for fields of other managers."""
    kind, live, now = strategy.kind, old.object, writer.now()
    schema, owner = schema_of(kind), applier(kind, options)
    config = parse_configuration(kind, patch, schema)
    checked = metadata.decode_object(kind, config, custom=strategy.custom)
    metadata.set_identity(kind, checked, namespace, name_of(live))
    metadata.check_version(kind, checked, live, required=False)
    part = partial(status_of, strategy) if options.status else partial(without_status, kind)
    owners = ManagedFields.stored(live).before_apply(schema, live, kind.api_version, now)
    yielded = None if options.force else fields_to_take_over(options.field_manager, schema, live)
    found, owners = owners.applied(schema, part(live), part(config), owner, now, yielded=yielded)
    found = update_last_applied(options.field_manager, live, found, config)
    new = metadata.decode_object(kind, {**live, **found}, custom=strategy.custom)
    if not options.status:
        new = {key: value for key, value in new.items() if key in found or key == "status"}
    return writer.change(strategy, old, new, options, owners, applied=True)
