"""The server-side apply verb: merges a configuration into the live object and updates managed fields."""

from __future__ import annotations

from functools import partial
from typing import Any

from trainwright.api.objects import name_of
from trainwright.controlplane.apiserver.managed_fields.managed_writes import (
    NO_MANAGERS,
    applier,
    schema_of,
    status_of,
    without_status,
)
from trainwright.controlplane.apiserver.managed_fields.managers import ManagedFields, fields_to_take_over, update_last_applied
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.verbs import metadata, patches
from trainwright.controlplane.apiserver.verbs.results import Result
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter
from trainwright.controlplane.apiserver.wire.api_errors import conflict_error
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions


def apply_new(writer: ObjectWriter, strategy: Strategy, namespace: str, name: str, patch: Any, options: WriteOptions) -> Result:
    """Create an object from a configuration. Raises Conflict if it sets metadata.uid."""
    kind = strategy.kind
    config = patches.parse_configuration(kind, patch, schema_of(kind))
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
    config = patches.parse_configuration(kind, patch, schema)
    checked = metadata.decode_object(kind, config, custom=strategy.custom)
    metadata.set_identity(kind, checked, namespace, name_of(live))
    metadata.check_version(kind, checked, live, required=False)
    part = status_of if options.status else partial(without_status, kind)
    owners = ManagedFields.stored(live).before_apply(schema, live, kind.api_version, now)
    yielded = None if options.force else fields_to_take_over(options.field_manager, schema, live)
    found, owners = owners.applied(schema, part(live), part(config), owner, now, yielded=yielded)
    found = update_last_applied(options.field_manager, live, found, config)
    new = metadata.decode_object(kind, {**live, **found}, custom=strategy.custom)
    if not options.status:
        new = {key: value for key, value in new.items() if key in found or key == "status"}
    return writer.change(strategy, old, new, options, owners, applied=True)
