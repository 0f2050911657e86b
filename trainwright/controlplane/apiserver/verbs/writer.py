"""The common part of create, update, patch and apply: admission, managed fields and storage of the desired object.

Every method is called under the store's lock. A result is an object, or the Status of a deletion, with warnings. Creation in missing
or terminating namespaces is rejected, and empty terminating ones are detected.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from trainwright.api import kinds
from trainwright.api.admission.admit import governs
from trainwright.api.errors import AlreadyExists
from trainwright.api.generated_names import SUFFIX_LENGTH, SUFFIX_LETTERS
from trainwright.api.kinds import Kind
from trainwright.api.objects import DEFAULT_ACCOUNT, Obj, copy_of, is_deleting, name_of, namespace_of
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver.admission.webhooks import Webhooks
from trainwright.controlplane.apiserver.managed_fields.managed_writes import (
    NO_MANAGERS,
    is_unchanged,
    managers_after_create,
    managers_after_update,
    set_managed_fields,
)
from trainwright.controlplane.apiserver.managed_fields.managers import ManagedFields
from trainwright.controlplane.apiserver.resources.registry import STRATEGIES, Strategy, strategy_of
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import view_of
from trainwright.controlplane.apiserver.verbs import metadata
from trainwright.controlplane.apiserver.verbs.deletion import can_be_removed
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error, status_details
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

_NAME_ATTEMPTS = 8
Warnings = list[str]
INITIAL_NAMESPACES = ("default", "kube-system", "kubeflow-system")
"""Namespaces of a new cluster."""
PERMANENT_NAMESPACES = ("default", "kube-system")
NAMESPACE_CONTENTS = tuple(kind for kind in STRATEGIES if kind.namespaced and view_of(kind) is None)


class ObjectWriter:
    """Admits objects, records their field managers and stores them."""

    def __init__(self, store: Store, webhooks: Webhooks, clock: Callable[[], datetime], default_accounts: bool):
        self.store, self._webhooks, self.clock, self._default_accounts = store, webhooks, clock, default_accounts
        # Seeded once by the system: a system call per value could switch threads in the middle of a write.
        self._random = random.Random()

    def now(self) -> str:
        return rfc3339(self.clock())

    def stored(self, kind: Kind, namespace: str, name: str) -> Record:
        """Return the stored record. Raises NotFound."""
        record = self.store.get(kind.resource, namespace, name)
        if record is None:
            raise not_found_error(kind, name)
        return record

    def create(
        self, strategy: Strategy, new: Obj, options: WriteOptions, owners: ManagedFields = NO_MANAGERS, *, applied: bool = False
    ) -> Result:
        """Store a new object. With `applied`, `owners` is final; otherwise the request's field manager is added."""
        kind, now = strategy.kind, self.now()
        if kind.namespaced:
            check_namespace_active(self.store, kind, new)
        if kind.status and not strategy.keeps_status_on_create:
            new.pop("status", None)
        uid = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata.initialize(new, uid, now, generation=strategy.generation)
        self._name(kind, new)
        if not governs(new):
            metadata.validate(kind, new)
        asked = {**new, "metadata": dict(new["metadata"])}
        strategy.prepare_for_create(new)
        admitted, warnings = self._webhooks.admit(new, None, options, now)
        if not applied:
            owners = managers_after_create(strategy, asked, admitted, options, owners, now)
        set_managed_fields(admitted, owners)
        namespace, name = new["metadata"].get("namespace", ""), name_of(new)
        existing = self.store.get(kind.resource, namespace, name)
        if existing:
            prefix = "object is being deleted: " if is_deleting(existing.object) else ""
            raise AlreadyExists(f'{prefix}{kind.resource} "{name}" already exists', details=status_details(kind, name))
        if options.dry_run:
            return unstored_result(admitted, warnings, created=True)
        record = self.store.put(kind.resource, namespace, name, admitted, expected=0)
        if kind == kinds.NAMESPACE:
            self.ensure_default_account(name)
        return Result(record, warnings, created=True)

    def change(
        self, strategy: Strategy, old: Record, new: Obj, options: WriteOptions, owners: ManagedFields, *, applied: bool = False
    ) -> Result:
        """Admit and store the desired object of an update or patch.

        `owners` is the ownership before the write; with `applied`, the one after it.
        """
        kind, now = strategy.kind, self.now()
        if options.status:
            if not kind.status:
                raise not_found_error(kind, name_of(old.object))
            strategy.prepare_for_update(new, old.object)
            new = _with_status({**old.object, "metadata": metadata.of_status_write(strategy, new, old.object)}, new.get("status"))
            if not governs(new) and new["metadata"] != old.object["metadata"]:
                metadata.validate(kind, new, changed=True)
        else:
            if kind.status:
                new = _with_status(new, old.object.get("status"))
            metadata.check_deletion(kind, new, old.object)
            metadata.keep_server_fields(new, old.object)
            metadata.check_finalizers(kind, new, old.object)
            if not governs(new) and new["metadata"] != old.object["metadata"]:
                metadata.validate(kind, new, changed=True)
            strategy.prepare_for_update(new, old.object)
        warnings: Warnings = []
        asked = new
        if _only_releases(new, old.object):
            new = copy_of(new)  # admission returns a copy, too
        else:
            admitted, warnings = self._webhooks.admit(new, old.object, options, now)
            # A status write changes nothing else, not even through a default introduced after the object was stored.
            new = _with_status({**new, "metadata": admitted["metadata"]}, admitted.get("status")) if options.status else admitted
        if strategy.generation and not options.status:
            metadata.update_generation(new, old.object)
        if not applied and owners.entries:
            owners = managers_after_update(strategy, old.object, asked, new, options, owners, now)
        if is_unchanged(new, old.object, owners):
            return Result(old, warnings)
        set_managed_fields(new, owners)
        if options.dry_run:
            return unstored_result(new, warnings)
        if can_be_removed(new):
            self.remove(kind, old, new)
            return unstored_result(new, warnings)
        return Result(self.put(kind, old, new), warnings)

    def put(self, kind: Kind, old: Record, new: Obj) -> Record:
        return self.store.put(kind.resource, *old.key, new, expected=old.revision)

    def remove(self, kind: Kind, old: Record, last: Obj) -> Record:
        namespace, name = old.key
        removed = self.store.delete(kind.resource, namespace, name, expected=old.revision, last=last)
        if kind.namespaced:
            self.remove_finished_namespace(namespace)
        if kind == kinds.SERVICE_ACCOUNT and name == DEFAULT_ACCOUNT:
            self.ensure_default_account(namespace)
        return removed

    def ensure_default_account(self, namespace: str) -> None:
        """Create the default service account of an active namespace if it is missing, so that pods can be created at once.

        On a cluster the service account controller does this a moment later.
        """
        if not self._default_accounts:
            return  # as on an API server without controllers
        kind, record = kinds.SERVICE_ACCOUNT, self.store.get(kinds.NAMESPACE.resource, "", namespace)
        if record is None or is_deleting(record.object) or self.store.get(kind.resource, namespace, DEFAULT_ACCOUNT):
            return  # no namespace to create in, or nothing is missing
        account = {"apiVersion": kind.api_version, "kind": kind.kind}
        self.create(strategy_of(kind), {**account, "metadata": {"name": DEFAULT_ACCOUNT, "namespace": namespace}}, WriteOptions())

    def remove_finished_namespace(self, namespace: str) -> None:
        """Remove the namespace if it is terminating and empty."""
        record = removable_namespace(self.store, namespace)
        if record:
            self.remove(kinds.NAMESPACE, record, {**record.object, "spec": {}})

    def _name(self, kind: Kind, new: Obj) -> None:
        """Generate the object's name if requested, retrying a few times if it is taken."""
        if new["metadata"].get("name"):
            return  # the name was chosen
        for _ in range(_NAME_ATTEMPTS):
            new["metadata"].pop("name", None)
            metadata.generate_name(new, "".join(self._random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH)))
            if self.store.get(kind.resource, new["metadata"].get("namespace", ""), name_of(new)) is None:
                return  # free; when all attempts are taken, the create reports the conflict


def _with_status(obj: Obj, status: Any) -> Obj:
    changed = {**obj, "status": status}
    if status is None:
        del changed["status"]
    return changed


def _only_releases(new: Obj, old: Obj) -> bool:
    """Whether a write only removes finalizers: validation must not block the deletion of an object that became invalid."""
    before, after = dict(old["metadata"]), dict(new["metadata"])
    before.pop("managedFields", None), after.pop("managedFields", None)
    held, left = before.pop("finalizers", None) or [], after.pop("finalizers", None) or []
    return set(left) < set(held) and before == after and {**old, "metadata": 0} == {**new, "metadata": 0}


@dataclass(frozen=True)
class Result:
    """A result. With `is_status` it is a Status instead of an object of the requested kind."""

    record: Record
    warnings: Warnings = field(default_factory=list)
    created: bool = False
    is_status: bool = False

    @property
    def object(self) -> Obj:
        return self.record.object

    @property
    def data(self) -> bytes:
        return self.record.data


def unstored_result(obj: Obj, warnings: Warnings | None = None, *, created: bool = False, is_status: bool = False) -> Result:
    """A result with an object that is not stored."""
    return Result(Record(0, ("", ""), orjson.dumps(obj), obj), warnings or [], created, is_status)


def deletion_status(kind: Kind, obj: Obj) -> Result:
    """The Success Status for a removed object."""
    details = {**status_details(kind, name_of(obj)), "uid": obj["metadata"]["uid"]}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return unstored_result(status, is_status=True)


def check_namespace_active(store: Store, kind: Kind, obj: Obj) -> None:
    """Raises NotFound if the object's namespace does not exist, Forbidden if it is being deleted."""
    namespace = namespace_of(obj)
    record = store.get(kinds.NAMESPACE.resource, "", namespace)
    if record is None:
        raise not_found_error(kinds.NAMESPACE, namespace)
    if is_deleting(record.object):
        message = f"namespace {namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden_error(kind, name_of(obj), why, [cause])


def removable_namespace(store: Store, namespace: str) -> Record | None:
    """The namespace if it is being deleted and empty."""
    record = store.get(kinds.NAMESPACE.resource, "", namespace)
    if record is None or not can_be_removed({**record.object, "spec": {}}):
        return None  # it lives, or a finalizer of another controller is left
    return None if any(store.list(kind.resource, namespace)[0] for kind in NAMESPACE_CONTENTS) else record
