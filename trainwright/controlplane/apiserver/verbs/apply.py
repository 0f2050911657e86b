"""Server-side apply: from a configuration and the live object to the object that is stored, with its owners."""

from __future__ import annotations

from functools import partial
from typing import Any

from trainwright.api.objects import name_of
from trainwright.controlplane.apiserver.managed_fields.last_applied import kept_current, yielded_to
from trainwright.controlplane.apiserver.managed_fields.managed_views import schema_of, status_of, without_status
from trainwright.controlplane.apiserver.managed_fields.managed_writes import NOBODY, applier
from trainwright.controlplane.apiserver.managed_fields.managers import Ownership
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.verbs import metadata, patches
from trainwright.controlplane.apiserver.verbs.answers import Answer
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter
from trainwright.controlplane.apiserver.wire.api_errors import conflict
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions


def apply_new(writer: ObjectWriter, strategy: Strategy, namespace: str, name: str, patch: Any, options: WriteOptions) -> Answer:
    """Create an object from a configuration. Raises Conflict for one that names a uid."""
    kind = strategy.kind
    config = patches.configuration(kind, patch, schema_of(kind))
    new = metadata.decoded(kind, config, custom=strategy.custom)
    new["metadata"].setdefault("name", name)
    metadata.place(kind, new, namespace, name)
    if new["metadata"].get("uid"):
        raise conflict(strategy.kind, name, "uid mismatch: the provided object specified a uid, and no existing object was found")
    new["metadata"].pop("resourceVersion", None)
    config = without_status(kind, config)
    _, owners = NOBODY.applied(schema_of(kind), {"metadata": {}}, config, applier(kind, options), writer.now())
    return writer.create(strategy, new, options, owners, applied=True)


def apply(writer: ObjectWriter, strategy: Strategy, namespace: str, old: Record, patch: Any, options: WriteOptions) -> Answer:
    """Apply a configuration to an object that exists. Raises Conflict for fields that others own."""
    kind, live, now = strategy.kind, old.object, writer.now()
    schema, owner = schema_of(kind), applier(kind, options)
    config = patches.configuration(kind, patch, schema)
    checked = metadata.decoded(kind, config, custom=strategy.custom)
    metadata.place(kind, checked, namespace, name_of(live))
    metadata.check_version(kind, checked, live, required=False)
    part = status_of if options.status else partial(without_status, kind)
    owners = Ownership.stored(live).before_apply(schema, live, kind.api_version, now)
    yielded = None if options.force else yielded_to(options.manager, schema, live)
    found, owners = owners.applied(schema, part(live), part(config), owner, now, yielded=yielded)
    found = kept_current(options.manager, live, found, config)
    new = metadata.decoded(kind, {**live, **found}, custom=strategy.custom)
    if not options.status:
        new = {key: value for key, value in new.items() if key in found or key == "status"}
    return writer.change(strategy, old, new, options, owners, applied=True)
