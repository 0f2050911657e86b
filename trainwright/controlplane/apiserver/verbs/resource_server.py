"""The Kubernetes verbs on the store: get, list, create, update, patch, delete and watch, independent of HTTP.

Results share the store's objects: copy one before changing it. Every write happens under the store's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission.admit import check_readable
from trainwright.api.errors import ApiError, Conflict, NotFound, Undecodable
from trainwright.api.kinds import Kind
from trainwright.controlplane.apiserver.admission.webhooks import Validator, Webhooks
from trainwright.controlplane.apiserver.managed_fields.managed_writes import managed_fields_of, managers_before_write, schema_of
from trainwright.controlplane.apiserver.managed_fields.managers import ManagedFields
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.storage.events import Subscription
from trainwright.controlplane.apiserver.storage.listing import Page, list_page
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import View, stored_kind, view_of
from trainwright.controlplane.apiserver.verbs import metadata, patches
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions
from trainwright.controlplane.apiserver.verbs.patches import apply, apply_new
from trainwright.controlplane.apiserver.verbs.removal import delete_object, finalize_namespace, mark_evicted
from trainwright.controlplane.apiserver.verbs.writer import INITIAL_NAMESPACES, NAMESPACE_CONTENTS, ObjectWriter, Result, Warnings
from trainwright.controlplane.apiserver.wire import media
from trainwright.controlplane.apiserver.wire.api_errors import UnknownReasonError, not_found_error
from trainwright.controlplane.apiserver.wire.requests import ListOptions, WriteOptions, parse_resource_version
from trainwright.controlplane.host_paths import HostPathPolicy

_PLAIN = WriteOptions()
_ALL = ListOptions()
_DELETE = DeleteOptions()
log = logging.getLogger(__name__)


class ResourceServer:
    """The API without HTTP. Thread-safe. Without `host_paths` there is no machine whose folders claims are.

    Without `service_accounts`, namespaces have no default account and pods need none, as on an API server without controllers.
    `validators` are the webhooks of those who serve a kind, by its name.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        host_paths: HostPathPolicy | None = None,
        service_accounts: bool = True,
        validators: Mapping[str, Validator] = MappingProxyType({}),
    ):
        self.store = store
        webhooks = Webhooks(store, host_paths, service_accounts=service_accounts, validators=validators)
        self._writer = ObjectWriter(store, webhooks, clock, service_accounts)
        for name in INITIAL_NAMESPACES:
            if store.get(kinds.NAMESPACE.resource, "", name) is None:
                self.create(kinds.NAMESPACE, "", {"metadata": {"name": name}})
        with store.locked():
            for record in store.list(kinds.NAMESPACE.resource)[0]:
                self._writer.ensure_default_account(record.key[1])

    def get(self, kind: Kind, namespace: str, name: str) -> Result:
        """Return an object. Raises NotFound."""
        record, view = self._writer.stored(stored_kind(kind), namespace, name), view_of(kind)
        return Result(view.record(record) if view else record)

    def list(self, kind: Kind, namespace: str | None, options: ListOptions = _ALL) -> Page:
        """One page of the matching objects. Raises BadRequest, Expired, Timeout (for a future resource version)."""
        return list_page(self.store, kind, namespace, options)

    def subscribe(
        self, kind: Kind, namespace: str | None, since: int | None, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """Subscribe to changes after revision `since`; None starts with the current objects. Raises Expired."""
        return self.store.subscribe(stored_kind(kind).resource, namespace, since, wake=wake)

    def create(self, kind: Kind, namespace: str, obj: Any, options: WriteOptions = _PLAIN, *, name: str | None = None) -> Result:
        """Create an object. Raises AlreadyExists, BadRequest, Forbidden, Invalid, NotFound (for the namespace)."""
        strategy = strategy_of(kind)
        new = metadata.decode_object(kind, obj, custom=strategy.custom)
        metadata.set_identity(kind, new, namespace, name)
        if view := view_of(kind):
            kept, warnings = view.validate_and_convert(new, None, options)
            return _seen(view, self.create(view.stored, namespace, kept, options, name=name), warnings)
        if new["metadata"].get("resourceVersion", "0") != "0":
            raise UnknownReasonError("resourceVersion should not be set on objects to be created")
        with self.store.locked():
            return self._writer.create(strategy, new, options, ManagedFields.of(managed_fields_of(obj)))

    def update(self, kind: Kind, namespace: str, name: str, obj: Any, options: WriteOptions = _PLAIN) -> Result:
        """Replace an object or its status. Raises BadRequest, Conflict, Invalid, NotFound."""
        strategy = strategy_of(kind)
        known = self.store.get(kind.resource, namespace, name)
        new = metadata.decode_object(kind, obj, custom=strategy.custom, old=known)
        metadata.set_identity(kind, new, namespace, name)
        if view := view_of(kind):
            with self.store.locked():
                before = self.store.get(view.stored.resource, namespace, name)
                options = _checked_for_create(kind, namespace, name, options) if before is None else options
                kept, warnings = view.validate_and_convert(new, before.object if before else None, options)
                return _seen(view, self.update(view.stored, namespace, name, kept, options), warnings)
        with self.store.locked():
            old = self.store.get(kind.resource, namespace, name)
            if old is None:
                if not strategy.allows_create_on_update or options.status:
                    raise not_found_error(kind, name)
                options = _checked_for_create(kind, namespace, name, options)
                new["metadata"].pop("resourceVersion", None)
                return self._writer.create(strategy, new, options)
            if "resourceVersion" in new["metadata"]:
                parse_resource_version(new["metadata"]["resourceVersion"], "")
            try:
                metadata.check_version(kind, new, old.object, required=strategy.requires_resource_version)
            except ApiError:  # an object that cannot be read at all has the first word
                check_readable(new)
                raise
            return self._writer.change(strategy, old, new, options, managers_before_write(obj, old.object, options))

    def patch(self, kind: Kind, namespace: str, name: str, patch: Any, media_type: str, options: WriteOptions = _PLAIN) -> Result:
        """Patch an object or its status; an apply patch creates a missing object.

        Raises BadRequest, Conflict (also for an outdated resourceVersion in the patch), Invalid, NotFound, UnsupportedMediaType.
        """
        strategy = strategy_of(kind)
        patches.check_media_type(strategy, media_type)
        if view := view_of(kind):
            return self._patch_view(view, namespace, name, patch, media_type, options)
        with self.store.locked():
            old = self.store.get(kind.resource, namespace, name)
            if old is None:
                if media_type != media.APPLY or options.status:
                    raise not_found_error(kind, name)
                options = _checked_for_create(kind, namespace, name, options)
                return apply_new(self._writer, strategy, namespace, name, patch, options)
            if media_type == media.APPLY:
                return apply(self._writer, strategy, namespace, old, patch, options)
            changed = patches.apply_patch(strategy, old.object, patch, media_type)
            try:
                new = metadata.decode_object(kind, changed, custom=strategy.custom, old=old)
                metadata.set_identity(kind, new, namespace, name)
                metadata.check_identity(kind, new, old.object)
                parse_resource_version(new["metadata"].get("resourceVersion") or "0", "")
                metadata.check_version(kind, new, old.object, required=False)
                return self._writer.change(strategy, old, new, options, managers_before_write(changed, old.object, options))
            except Undecodable as error:
                raise patches.undecodable_error(error, kind, changed, patch, media_type) from error

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = _DELETE) -> Result:
        """Delete an object, or mark it until finalizers, grace period or namespace contents allow its removal.

        Raises Conflict for a failed precondition, Forbidden for a permanent namespace, NotFound.
        """
        if view := view_of(kind):
            answer = self.delete(view.stored, namespace, name, options)
            return answer if answer.is_status else _seen(view, answer, [])
        return delete_object(self._writer, kind, namespace, name, options, self._empty)

    def evict(self, namespace: str, name: str, options: DeleteOptions = _DELETE) -> None:
        """Mark a pod as disrupted and delete it. Raises Conflict for a failed precondition, NotFound."""
        if not options.dry_run:
            mark_evicted(self._writer, namespace, name)
        self.delete(kinds.POD, namespace, name, options)

    def delete_collection(
        self, kind: Kind, namespace: str | None, listing: ListOptions, options: DeleteOptions = _DELETE
    ) -> Page:
        """Delete all matching objects; returns them as they were before."""
        page = self.list(kind, namespace, listing)
        for record in page.records:
            try:
                self.delete(kind, *record.key, options)
            except NotFound:
                continue  # deleted concurrently
        return page

    def finalize(self, name: str, namespace: Any, options: WriteOptions = _PLAIN) -> Result:
        """Replace the finalizers of a namespace; removing the last one removes a terminating namespace. Raises NotFound, Conflict."""
        return finalize_namespace(self._writer, name, namespace, options)

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Assign a pod to a node. Raises Conflict if it is already assigned, NotFound."""
        bind_pod(self._writer, namespace, name, node)

    def _patch_view(self, view: View, namespace: str, name: str, patch: Any, media_type: str, options: WriteOptions) -> Result:
        """Patch an object that is stored as another kind: patch its served form, then store the result as an update."""
        with self.store.locked():
            if media_type == media.APPLY:
                config, warnings = patches.parse_configuration(view.kind, patch, schema_of(view.kind)), list[str]()
                if self.store.get(view.stored.resource, namespace, name) is None:
                    options = _checked_for_create(view.kind, namespace, name, options)
                return _seen(
                    view, self.patch(view.stored, namespace, name, view.to_stored(config), media_type, options), warnings
                )
            old = self._writer.stored(view.stored, namespace, name)
            changed = patches.apply_patch(strategy_of(view.kind), view.from_stored(old.object), patch, media_type)
            return self.update(view.kind, namespace, name, changed, options)

    def _empty(self, namespace: str) -> None:
        """Delete the contents of a terminating namespace; removing the last object removes the namespace."""
        for kind in NAMESPACE_CONTENTS:
            self.delete_collection(kind, namespace, _ALL, DeleteOptions("Background"))
        self._writer.remove_finished_namespace(namespace)


def _seen(view: View, answer: Result, warnings: Warnings) -> Result:
    return replace(answer, record=view.record(answer.record), warnings=[*warnings, *answer.warnings])


def _checked_for_create(kind: Kind, namespace: str, name: str, options: WriteOptions) -> WriteOptions:
    """Return the options of an update or apply patch of a missing object. Raises Forbidden if its sender may not create that."""
    if options.sender is None or options.is_checked:
        return options
    options.sender.require("create", kind, namespace, name)
    return replace(options, is_checked=True)


def bind_pod(writer: ObjectWriter, namespace: str, name: str, node: str) -> None:
    """Assign a pod to a node. Raises Conflict if it is already assigned, NotFound."""
    kind = kinds.POD
    if not node:
        raise UnknownReasonError("target.name: Required value")
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        bound = (old.object.get("spec") or {}).get("nodeName")
        if bound:
            details = {"name": name, "kind": "pods/binding"}
            why = f'pod {name} is already assigned to node "{bound}"'
            raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {why}', details=details)
        status = {name: value for name, value in (old.object.get("status") or {}).items() if name != "nominatedNodeName"}
        others = [entry for entry in status.get("conditions") or [] if entry.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": writer.now()}
        pod = {
            **old.object,
            "spec": {**old.object["spec"], "nodeName": node},
            "status": {**status, "conditions": [*others, scheduled]},
        }
        writer.put(kind, old, pod)
