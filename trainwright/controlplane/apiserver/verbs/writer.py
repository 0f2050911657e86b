"""Storing an object: what create, update, patch and apply have in common once the object that is wanted is known.

Every method is called under the store's lock.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.admit import governs
from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, copy_of, is_deleting, name_of
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver.admission.trainjob_updates import check_trainjob_update
from trainwright.controlplane.apiserver.admission.webhooks import Webhooks
from trainwright.controlplane.apiserver.managed_fields.managed_writes import (
    NOBODY,
    is_same,
    owners_after,
    owners_of_new,
    record_owners,
)
from trainwright.controlplane.apiserver.managed_fields.managers import Ownership
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs import metadata, namespaces
from trainwright.controlplane.apiserver.verbs.answers import Answer, Warnings, answer_with
from trainwright.controlplane.apiserver.verbs.deletion import is_over
from trainwright.controlplane.apiserver.wire.api_errors import details_of, not_found
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

_NAME_ATTEMPTS = 8


class ObjectWriter:
    """Admits objects, records their owners and stores them."""

    def __init__(self, store: Store, webhooks: Webhooks, clock: Callable[[], datetime]):
        self.store, self._webhooks, self.clock = store, webhooks, clock
        # Seeded by the system; asking it each time would let another thread in, in the middle of a write.
        self._random = random.Random()

    def now(self) -> str:
        return rfc3339(self.clock())

    def stored(self, kind: Kind, namespace: str, name: str) -> Record:
        """Raises NotFound."""
        record = self.store.get(kind.resource, namespace, name)
        if record is None:
            raise not_found(kind, name)
        return record

    def create(
        self, strategy: Strategy, new: Obj, options: WriteOptions, owners: Ownership = NOBODY, *, applied: bool = False
    ) -> Answer:
        """Store a new object. Its owners are given where it was applied; otherwise its author is one of them."""
        kind, now = strategy.kind, self.now()
        if kind.namespaced:
            namespaces.check_open(self.store, kind, new)
        if kind.status and not strategy.keeps_status_on_create:
            new.pop("status", None)
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata.start(new, uid, now, generation=strategy.generation)
        self._name(kind, new)
        if not governs(new):
            metadata.check(kind, new)
        asked = {**new, "metadata": dict(new["metadata"])}
        strategy.prepare_for_create(new)
        admitted, warnings = self._webhooks.admitted(new, None, options, now)
        if not applied:
            owners = owners_of_new(strategy, asked, admitted, options, owners, now)
        record_owners(admitted, owners)
        namespace, name = new["metadata"].get("namespace", ""), name_of(new)
        existing = self.store.get(kind.resource, namespace, name)
        if existing:
            prefix = "object is being deleted: " if is_deleting(existing.object) else ""
            raise AlreadyExists(f'{prefix}{kind.resource} "{name}" already exists', details=details_of(kind, name))
        if options.dry_run:
            return answer_with(admitted, warnings, created=True)
        record = self.store.put(kind.resource, namespace, name, admitted, expected=0)
        return Answer(record, warnings, created=True)

    def change(
        self, strategy: Strategy, old: Record, new: Obj, options: WriteOptions, owners: Ownership, *, applied: bool = False
    ) -> Answer:
        """The second half of update and patch: from the object that is wanted to the one that is stored.

        `owners` are those before the write; after an apply, those after it.
        """
        kind, now = strategy.kind, self.now()
        if options.status:
            if not kind.status:
                raise not_found(kind, name_of(old.object))
            new = _with_status({**old.object, "metadata": dict(old.object["metadata"])}, new.get("status"))
        else:
            if kind.status:
                new = _with_status(new, old.object.get("status"))
            metadata.check_deletion(kind, new, old.object)
            metadata.carry_over(new, old.object)
            metadata.check_finalizers(kind, new, old.object)
            if not governs(new) and new["metadata"] != old.object["metadata"]:
                metadata.check(kind, new, changed=True)
            strategy.prepare_for_update(new, old.object)
        warnings: Warnings = []
        asked = new
        if _only_releases(new, old.object):
            new = copy_of(new)  # what is admitted is a copy, too
        else:
            admitted, warnings = self._webhooks.admitted(new, old.object, options, now)
            # A status write changes nothing else, not even by a default that is newer than the object.
            new = _with_status(new, admitted.get("status")) if options.status else admitted
            if kind == kinds.TRAINJOB and not options.status:
                check_trainjob_update(old.object, new, self._webhooks.lookup)
        if strategy.generation and not options.status:
            metadata.count_generation(new, old.object)
        if not applied and owners.entries:
            owners = owners_after(strategy, old.object, asked, new, options, owners, now)
        if is_same(new, old.object, owners):
            return Answer(old, warnings)
        record_owners(new, owners)
        if options.dry_run:
            return answer_with(new, warnings)
        if is_over(new):
            self.remove(kind, old, new)
            return answer_with(new, warnings)
        return Answer(self.put(kind, old, new), warnings)

    def put(self, kind: Kind, old: Record, new: Obj) -> Record:
        return self.store.put(kind.resource, *old.key, new, expected=old.revision)

    def remove(self, kind: Kind, old: Record, last: Obj) -> Record:
        namespace, name = old.key
        removed = self.store.delete(kind.resource, namespace, name, expected=old.revision, last=last)
        if kind.namespaced:
            self.remove_finished_namespace(namespace)
        return removed

    def remove_finished_namespace(self, namespace: str) -> None:
        """Remove a doomed namespace that is empty."""
        record = namespaces.finished(self.store, namespace)
        if record:
            self.remove(kinds.NAMESPACE, record, {**record.object, "spec": {}})

    def _name(self, kind: Kind, new: Obj) -> None:
        """The object's name, generated where that is wanted and, within reason, free."""
        if new["metadata"].get("name"):
            return
        for _ in range(_NAME_ATTEMPTS):
            new["metadata"].pop("name", None)
            metadata.name_new(new, "".join(self._random.choices(metadata.SUFFIX_LETTERS, k=metadata.SUFFIX_LENGTH)))
            if self.store.get(kind.resource, new["metadata"].get("namespace", ""), name_of(new)) is None:
                return


def _with_status(obj: Obj, status: Any) -> Obj:
    changed = {**obj, "status": status}
    if status is None:
        del changed["status"]
    return changed


def _only_releases(new: Obj, old: Obj) -> bool:
    """Whether a write only takes finalizers away: rules that the object no longer meets must not keep it from going."""
    before, after = dict(old["metadata"]), dict(new["metadata"])
    before.pop("managedFields", None), after.pop("managedFields", None)
    held, left = before.pop("finalizers", None) or [], after.pop("finalizers", None) or []
    return set(left) < set(held) and before == after and {**old, "metadata": 0} == {**new, "metadata": 0}
