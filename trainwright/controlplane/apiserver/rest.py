"""The verbs of Kubernetes on the store: what get, list, create, update, patch, delete and watch mean, whoever asks and however.

Answers share the store's objects: copy one before changing it. Every write is decided and carried out under the store's lock.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from trainwright.api import kinds
from trainwright.api.admission import check_readable, governs
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, NotFound, Undecodable
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj, copy_of, is_deleting, name_of
from trainwright.api.times import rfc3339
from trainwright.controlplane.apiserver import metadata, namespaces, patches
from trainwright.controlplane.apiserver.answers import Answer, Warnings, answer_with, deleted
from trainwright.controlplane.apiserver.deletion import DeleteOptions, check_preconditions, is_over, marked
from trainwright.controlplane.apiserver.events import Subscription
from trainwright.controlplane.apiserver.failures import Unspecified, conflict, details_of, forbidden, not_found
from trainwright.controlplane.apiserver.last_applied import kept_current, yielded_to
from trainwright.controlplane.apiserver.list_options import ListOptions, version_number
from trainwright.controlplane.apiserver.listing import listed
from trainwright.controlplane.apiserver.owned_views import shape_of, status_of, without_status
from trainwright.controlplane.apiserver.owned_writes import (
    NOBODY,
    applier,
    is_same,
    managed_in,
    owners_after,
    owners_before,
    owners_of_new,
    record_owners,
)
from trainwright.controlplane.apiserver.ownership import Ownership
from trainwright.controlplane.apiserver.pagination import Page
from trainwright.controlplane.apiserver.records import Record
from trainwright.controlplane.apiserver.registry import Strategy, strategy_of
from trainwright.controlplane.apiserver.store import Store
from trainwright.controlplane.apiserver.trainjob_updates import check_trainjob_update
from trainwright.controlplane.apiserver.views import View, stored_kind, view_of
from trainwright.controlplane.apiserver.webhooks import Webhooks
from trainwright.controlplane.apiserver.write_options import WriteOptions
from trainwright.controlplane.gates import FeatureGates

log = logging.getLogger(__name__)

_NAME_ATTEMPTS = 8
_DEFAULT_GATES = FeatureGates()
_ORPHANED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_PLAIN = WriteOptions()
_ALL = ListOptions()
_DELETE = DeleteOptions()


class ResourceServer:
    """The API without HTTP. Safe to use from many threads."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        gates: FeatureGates = _DEFAULT_GATES,
    ):
        self.store, self._webhooks = store, Webhooks(store, gates)
        self._clock = clock
        # Seeded by the system; to ask it each time would let another thread in, in the midst of a write.
        self._random = random.Random()
        for name in namespaces.FIRST:
            if store.get(kinds.NAMESPACE.resource, "", name) is None:
                self.create(kinds.NAMESPACE, "", {"metadata": {"name": name}})

    def get(self, kind: Kind, namespace: str, name: str) -> Answer:
        """One object. Raises NotFound."""
        record, view = self._stored(stored_kind(kind), namespace, name), view_of(kind)
        return Answer(view.record(record) if view else record)

    def list(self, kind: Kind, namespace: str | None, options: ListOptions = _ALL) -> Page:
        """The objects that match, or a page of them. Raises BadRequest, Expired, Timeout (for a version of the future)."""
        return listed(self.store, kind, namespace, options)

    def subscribe(
        self, kind: Kind, namespace: str | None, since: int | None, wake: Callable[[], None] | None = None
    ) -> Subscription:
        """Hear of changes after `since` (None: from now on, with what there is). Raises Expired."""
        return self.store.subscribe(stored_kind(kind).resource, namespace, since, wake=wake)

    def create(self, kind: Kind, namespace: str, obj: Any, options: WriteOptions = _PLAIN, *, name: str | None = None) -> Answer:
        """Raises AlreadyExists, BadRequest, Forbidden, Invalid, NotFound (for the namespace)."""
        strategy = strategy_of(kind)
        new = metadata.decoded(kind, obj, custom=strategy.custom)
        metadata.place(kind, new, namespace, name)
        if view := view_of(kind):
            kept, warnings = view.taken(new, None, options)
            return _seen(view, self.create(view.stored, namespace, kept, options, name=name), warnings)
        if new["metadata"].get("resourceVersion", "0") != "0":
            raise Unspecified("resourceVersion should not be set on objects to be created")
        with self.store.locked():
            return self._create(strategy, new, options, Ownership.of(managed_in(obj)))

    def update(self, kind: Kind, namespace: str, name: str, obj: Any, options: WriteOptions = _PLAIN) -> Answer:
        """Replace an object, or its status. Raises BadRequest, Conflict, Invalid, NotFound."""
        strategy = strategy_of(kind)
        known = self.store.get(kind.resource, namespace, name)
        new = metadata.decoded(kind, obj, custom=strategy.custom, old=known)
        metadata.place(kind, new, namespace, name)
        if view := view_of(kind):
            with self.store.locked():
                before = self.store.get(view.stored.resource, namespace, name)
                kept, warnings = view.taken(new, before.object if before else None, options)
                return _seen(view, self.update(view.stored, namespace, name, kept, options), warnings)
        with self.store.locked():
            old = self.store.get(kind.resource, namespace, name)
            if old is None:
                if not strategy.created_by_put or options.status:
                    raise not_found(kind, name)
                new["metadata"].pop("resourceVersion", None)
                return self._create(strategy, new, options)
            if "resourceVersion" in new["metadata"]:
                version_number(new["metadata"]["resourceVersion"], "")
            try:
                metadata.check_version(kind, new, old.object, required=strategy.needs_version)
            except ApiError:
                check_readable(new)
                raise
            return self._change(strategy, old, new, options, owners_before(obj, old.object, options))

    def patch(self, kind: Kind, namespace: str, name: str, patch: Any, media_type: str, options: WriteOptions = _PLAIN) -> Answer:
        """Change an object, or its status; an apply patch creates what is not there.

        Raises BadRequest, Conflict (also for a stale version within the patch), Invalid, NotFound, UnsupportedMediaType.
        """
        strategy = strategy_of(kind)
        patches.check_media_type(strategy, media_type)
        if view := view_of(kind):
            return self._patch_view(view, namespace, name, patch, media_type, options)
        with self.store.locked():
            old = self.store.get(kind.resource, namespace, name)
            if old is None:
                if media_type != patches.APPLY or options.status:
                    raise not_found(kind, name)
                return self._apply_new(strategy, namespace, name, patch, options)
            if media_type == patches.APPLY:
                return self._apply(strategy, namespace, old, patch, options)
            changed = patches.patched(strategy, old.object, patch, media_type)
            try:
                new = metadata.decoded(kind, changed, custom=strategy.custom, old=old)
                metadata.place(kind, new, namespace, name)
                metadata.check_identity(kind, new, old.object)
                version_number(new["metadata"].get("resourceVersion") or "0", "")
                metadata.check_version(kind, new, old.object, required=False)
                return self._change(strategy, old, new, options, owners_before(changed, old.object, options))
            except Undecodable as error:
                raise patches.unreadable(error, kind, changed, patch, media_type) from error

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions = _DELETE) -> Answer:
        """Delete an object, or mark it until its finalizers, its grace or its contents allow it.

        Raises Conflict for a precondition, Forbidden for a namespace that has to be, NotFound.
        """
        if view := view_of(kind):
            answer = self.delete(view.stored, namespace, name, options)
            return answer if answer.is_status else _seen(view, answer, [])
        strategy = strategy_of(kind)
        with self.store.locked():
            old = self._stored(kind, namespace, name)
            check_preconditions(kind, old.object, options)
            if kind == kinds.NAMESPACE and name in namespaces.PERMANENT:
                raise forbidden(kind, name, "this namespace may not be deleted")
            warnings: Warnings = []
            if options.propagation is None and strategy.orphans_by_default:
                options, warnings = replace(options, propagation="Orphan"), [_ORPHANED]
            doomed, over = marked(strategy, old.object, options, self._clock())
            if options.dry_run:
                return answer_with(doomed) if not over or strategy.answers_deleted_object else deleted(kind, old.object)
            if over:
                last = self._remove(kind, old, doomed)
                return Answer(last) if strategy.answers_deleted_object else deleted(kind, old.object)
            if doomed != old.object:
                old = self._put(kind, old, doomed)
            if kind == kinds.NAMESPACE:
                self._empty(name)
            return Answer(old, warnings)

    def delete_collection(
        self, kind: Kind, namespace: str | None, listing: ListOptions, options: DeleteOptions = _DELETE
    ) -> Page:
        """Delete every object that matches; returns them as they were."""
        page = self.list(kind, namespace, listing)
        for record in page.records:
            try:
                self.delete(kind, *record.key, options)
            except NotFound:
                continue  # somebody else was faster, which is what was wanted
        return page

    def finalize(self, name: str, namespace: Any, options: WriteOptions = _PLAIN) -> Answer:
        """Replace what holds a namespace; one that is being deleted goes with the last of it. Raises NotFound, Conflict."""
        kind = kinds.NAMESPACE
        new = metadata.decoded(kind, namespace, custom=False)
        with self.store.locked():
            old = self._stored(kind, "", name)
            metadata.check_version(kind, new, old.object, required=False)
            changed = {**old.object, "spec": new.get("spec") or {}}
            if options.dry_run or changed == old.object:
                return answer_with(changed)
            if is_over(changed):
                self._remove(kind, old, changed)
                return answer_with(changed)
            return Answer(self._put(kind, old, changed))

    def bind(self, namespace: str, name: str, node: str) -> None:
        """Give a pod its node, once. Raises Conflict when it has one, NotFound."""
        kind = kinds.POD
        if not node:
            raise Unspecified("target.name: Required value")
        with self.store.locked():
            old = self._stored(kind, namespace, name)
            bound = (old.object.get("spec") or {}).get("nodeName")
            if bound:
                details = {"name": name, "kind": "pods/binding"}
                why = f'pod {name} is already assigned to node "{bound}"'
                raise Conflict(f'Operation cannot be fulfilled on pods/binding "{name}": {why}', details=details)
            status = old.object.get("status") or {}
            others = [entry for entry in status.get("conditions") or [] if entry.get("type") != "PodScheduled"]
            scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": self._now()}
            pod = {
                **old.object,
                "spec": {**old.object["spec"], "nodeName": node},
                "status": {**status, "conditions": [*others, scheduled]},
            }
            self._put(kind, old, pod)

    def _create(
        self, strategy: Strategy, new: Obj, options: WriteOptions, owners: Ownership = NOBODY, *, applied: bool = False
    ) -> Answer:
        """Store a new object. Its owners are given where it was applied; otherwise its author is one of them."""
        kind, now = strategy.kind, self._now()
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

    def _patch_view(self, view: View, namespace: str, name: str, patch: Any, media_type: str, options: WriteOptions) -> Answer:
        """A patch of another form of what is stored: of that form, and then stored as any replacement of it."""
        with self.store.locked():
            if media_type == patches.APPLY:
                config, warnings = patches.configuration(view.kind, patch, shape_of(view.kind)), list[str]()
                return _seen(view, self.patch(view.stored, namespace, name, view.kept(config), media_type, options), warnings)
            old = self._stored(view.stored, namespace, name)
            changed = patches.patched(strategy_of(view.kind), view.shown(old.object), patch, media_type)
            return self.update(view.kind, namespace, name, changed, options)

    def _name(self, kind: Kind, new: Obj) -> None:
        """The object's name, generated where that is wanted and, within reason, free."""
        if new["metadata"].get("name"):
            return
        for _ in range(_NAME_ATTEMPTS):
            new["metadata"].pop("name", None)
            metadata.name_new(new, "".join(self._random.choices(metadata.SUFFIX_LETTERS, k=metadata.SUFFIX_LENGTH)))
            if self.store.get(kind.resource, new["metadata"].get("namespace", ""), name_of(new)) is None:
                return

    def _apply_new(self, strategy: Strategy, namespace: str, name: str, patch: Any, options: WriteOptions) -> Answer:
        kind = strategy.kind
        config = patches.configuration(kind, patch, shape_of(kind))
        new = metadata.decoded(kind, config, custom=strategy.custom)
        new["metadata"].setdefault("name", name)
        metadata.place(kind, new, namespace, name)
        if new["metadata"].get("uid"):
            raise conflict(
                strategy.kind, name, "uid mismatch: the provided object specified a uid, and no existing object was found"
            )
        new["metadata"].pop("resourceVersion", None)
        config = without_status(kind, config)
        _, owners = NOBODY.applied(shape_of(kind), {"metadata": {}}, config, applier(kind, options), self._now())
        return self._create(strategy, new, options, owners, applied=True)

    def _apply(self, strategy: Strategy, namespace: str, old: Record, patch: Any, options: WriteOptions) -> Answer:
        kind, live, now = strategy.kind, old.object, self._now()
        shape, owner = shape_of(kind), applier(kind, options)
        config = patches.configuration(kind, patch, shape)
        checked = metadata.decoded(kind, config, custom=strategy.custom)
        metadata.place(kind, checked, namespace, name_of(live))
        metadata.check_version(kind, checked, live, required=False)
        part = status_of if options.status else partial(without_status, kind)
        owners = Ownership.stored(live).before_apply(shape, live, kind.api_version, now)
        yielded = None if options.force else yielded_to(options.manager, shape, live)
        found, owners = owners.applied(shape, part(live), part(config), owner, now, yielded=yielded)
        found = kept_current(options.manager, live, found, config)
        new = metadata.decoded(kind, {**live, **found}, custom=strategy.custom)
        if not options.status:
            new = {key: value for key, value in new.items() if key in found or key == "status"}
        return self._change(strategy, old, new, options, owners, applied=True)

    def _change(
        self, strategy: Strategy, old: Record, new: Obj, options: WriteOptions, owners: Ownership, *, applied: bool = False
    ) -> Answer:
        """The second half of update and patch: from the object that is wanted to the one that is stored.

        `owners` are those before the write; after an apply, those after it.
        """
        kind, now = strategy.kind, self._now()
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
            self._remove(kind, old, new)
            return answer_with(new, warnings)
        return Answer(self._put(kind, old, new), warnings)

    def _stored(self, kind: Kind, namespace: str, name: str) -> Record:
        record = self.store.get(kind.resource, namespace, name)
        if record is None:
            raise not_found(kind, name)
        return record

    def _put(self, kind: Kind, old: Record, new: Obj) -> Record:
        return self.store.put(kind.resource, *old.key, new, expected=old.revision)

    def _remove(self, kind: Kind, old: Record, last: Obj) -> Record:
        namespace, name = old.key
        removed = self.store.delete(kind.resource, namespace, name, expected=old.revision, last=last)
        if kind.namespaced:
            self._finish(namespace)
        return removed

    def _empty(self, namespace: str) -> None:
        """Delete what a doomed namespace holds; what does not go at once takes the namespace with it when it goes."""
        for kind in namespaces.CONTENTS:
            self.delete_collection(kind, namespace, _ALL, DeleteOptions("Background"))
        self._finish(namespace)

    def _finish(self, namespace: str) -> None:
        """Remove a doomed namespace that is empty."""
        record = namespaces.finished(self.store, namespace)
        if record:
            self._remove(kinds.NAMESPACE, record, {**record.object, "spec": {}})

    def _now(self) -> str:
        return rfc3339(self._clock())


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


def _seen(view: View, answer: Answer, warnings: Warnings) -> Answer:
    return replace(answer, record=view.record(answer.record), warnings=[*warnings, *answer.warnings])
