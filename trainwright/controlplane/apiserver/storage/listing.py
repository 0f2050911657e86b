"""Implements list requests: resource version, selectors, limit and continue token; selectors apply to watches, too.

A continue token holds the resource version of the first page and the last key sent, so that all pages are one consistent list. In a
watch, an object that starts or stops matching the selectors is reported as ADDED or DELETED.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import orjson

from trainwright.api.errors import ApiError, BadRequest, Expired
from trainwright.api.kinds import EVENT, JOB, NAMESPACE, NODE, POD, SECRET, SERVICE, Kind
from trainwright.api.objects import Obj
from trainwright.api.selectors.selection import Selector, field_selector, field_terms, label_selector
from trainwright.controlplane.apiserver.resources.registry import Strategy, strategy_of
from trainwright.controlplane.apiserver.storage.events import Event
from trainwright.controlplane.apiserver.storage.object_table import INDEXED, Key, Record, Records
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.storage.views import View, stored_kind, view_of
from trainwright.controlplane.apiserver.wire.requests import ListOptions, parse_resource_version, resource_version_too_large

_TOKEN_VERSION = "meta.k8s.io/v1"
ANY_VERSION = -1
"""In a token: continue with the current list, even if it is inconsistent with the earlier pages."""
_OWN_FIELDS = (POD, NODE, EVENT, NAMESPACE, SECRET, SERVICE)
"""Built-in kinds with their own field selectors and a different error message for unsupported fields."""


def list_page(store: Store, kind: Kind, namespace: str | None, options: ListOptions) -> Page:
    """One page of the matching objects. Raises BadRequest, Expired, Timeout (for a future resource version)."""
    selection = Selection.parse(strategy_of(kind), options.label_selector, options.field_selector)
    records, revision = _candidates(store, stored_kind(kind), namespace, options, selection)
    if not selection.everything or selection.view:
        records = [shown for shown in map(selection.select, records) if shown is not None]
    if options.continue_token:
        _, last = parse_token(options.continue_token, namespace)
        records = [record for record in records if record.key > last]
    # Like kube-apiserver's watch cache, ignore the limit for resource version 0.
    limit = 0 if options.resource_version == "0" else options.limit
    return paginate(records, revision, limit, namespace, counted=selection.everything)


def _candidates(
    store: Store, kind: Kind, namespace: str | None, options: ListOptions, selection: Selection
) -> tuple[Records, int]:
    """The objects to select from, at the requested resource version."""
    if options.continue_token:
        revision, last = parse_token(options.continue_token, namespace)
        if revision == ANY_VERSION:
            # the client has accepted an inconsistent rest of an expired list
            return store.list(kind.resource, namespace, label=selection.indexed_label)
        if revision > store.revision:
            raise resource_version_too_large(revision, store.revision)
        try:
            return store.list_at(kind.resource, namespace, revision), revision
        except Expired as error:  # the history is shorter than the client was slow: it gets a token for the current list
            raise expired(last, namespace) from error
    if options.resource_version in ("", "0"):
        # the newest state is in memory, and as fast as an older one
        return store.list(kind.resource, namespace, label=selection.indexed_label)
    try:
        wanted = parse_resource_version(options.resource_version)
    except ApiError as error:
        raise BadRequest(f"invalid resource version: {error}") from None
    if wanted > store.revision:
        raise resource_version_too_large(wanted, store.revision)
    if options.resource_version_match != "Exact" and not (options.limit and not options.resource_version_match):
        return store.list(kind.resource, namespace, label=selection.indexed_label)  # "not older than" is met by the current state
    try:
        return store.list_at(kind.resource, namespace, wanted), wanted
    except Expired as error:  # with the message of lists, not that of watches
        raise Expired("The resourceVersion for the provided list is too old.") from error


@dataclass(frozen=True)
class Page:
    """`token` is empty on the last page; `remaining` is None (unknown) if a selector was used."""

    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


class ContinueExpired(Expired):
    """The resource version of a token is no longer kept; `token` continues with the current list."""

    def __init__(self, token: str):
        super().__init__(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
            "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
            "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
            "deleted between the time the first chunk was returned and now may show up in the list."
        )
        self.token = token

    def status(self) -> Obj:
        return {**super().status(), "metadata": {"continue": self.token}}


def paginate(records: list[Record], revision: int, limit: int, namespace: str | None, *, counted: bool) -> Page:
    """The first `limit` records (all for 0) of a list of one or all namespaces, with the token for the rest."""
    if limit <= 0 or len(records) <= limit:
        return Page(records, revision)
    page = records[:limit]
    return Page(page, revision, _continue_token(revision, page[-1].key, namespace), len(records) - limit if counted else None)


def _continue_token(revision: int, last: Key, namespace: str | None) -> str:
    # The format of kube-apiserver: the last key relative to the list, with a zero byte to skip that key itself.
    start = f"{last[0]}/{last[1]}\0" if last[0] and not namespace else f"{last[1]}\0"
    return base64.urlsafe_b64encode(orjson.dumps({"v": _TOKEN_VERSION, "rv": revision, "start": start})).decode().rstrip("=")


def parse_token(token: str, namespace: str | None) -> tuple[int, Key]:
    """The resource version of the list and the last key sent. Raises BadRequest."""
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = content["rv"], content["start"]
        if content["v"] != _TOKEN_VERSION or type(version) is not int or not start or (version <= 0 and version != ANY_VERSION):
            raise ValueError("unknown version")
        space, _, name = start.rstrip("\0").rpartition("/")
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not of this server, or edited
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from None
    return version, (namespace or space, name)


def expired(last: Key, namespace: str | None) -> ContinueExpired:
    """The error for an expired token, with a new token for the rest of the current list."""
    return ContinueExpired(_continue_token(ANY_VERSION, last, namespace))


@dataclass(frozen=True)
class Selection:
    """Parsed label and field selectors; `everything` if both are empty."""

    everything: bool
    labels: Selector
    fields: Selector
    indexed_label: tuple[str, str] | None = None
    """An indexed label that the label selector requires, with its value."""
    view: View | None = None
    """The conversion for kinds that are stored as another kind."""

    @classmethod
    def parse(cls, strategy: Strategy, labels: str = "", fields: str = "") -> Selection:
        """Parse selectors. Raises BadRequest for an invalid selector or an unsupported field."""
        try:
            terms = field_terms(fields)
        except BadRequest:  # the words of the API server, which quote the part
            part = next((term for term in fields.split(",") if "=" not in term), fields)
            raise BadRequest(f"invalid selector: '{fields}'; can't understand '{part}'") from None
        for path, _, _ in terms:
            if path not in strategy.selectable_fields:
                raise BadRequest(_unsupported(strategy, path))
        everything = not (labels.strip() or fields.strip())
        return cls(
            everything,
            label_selector(labels),
            field_selector(fields, strategy.derived_fields),
            _indexed(labels),
            view_of(strategy.kind),
        )

    def select(self, record: Record) -> Record | None:
        """The record in the requested kind; None if it does not match."""
        record = self.view.record(record) if self.view else record
        return record if self.matches(record.object) else None

    def matches(self, obj: Obj) -> bool:
        return self.everything or (self.labels(obj) and self.fields(obj))

    def convert_event(self, event: Event) -> tuple[str, Record] | None:
        """The watch event type and record for a watcher with these selectors; None if the event does not concern it."""
        if self.view:
            previous = self.view.record(event.previous) if event.previous else None
            event = replace(event, record=self.view.record(event.record), previous=previous)
        if self.everything:
            return event.type, event.record
        before = event.previous if event.previous and self.matches(event.previous.object) else None
        if event.type == "DELETED":
            return ("DELETED", event.record) if before else None
        if self.matches(event.record.object):
            return ("MODIFIED" if before else "ADDED"), event.record
        return ("DELETED", _at(before, event.revision)) if before else None


def _unsupported(strategy: Strategy, path: str) -> str:
    if strategy.custom or strategy.kind in _OWN_FIELDS:
        return f"field label not supported: {path}"
    if strategy.kind == JOB:
        return f'field label "{path}" not supported for Job'
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _indexed(labels: str) -> tuple[str, str] | None:
    label, _, value = labels.partition(",")[0].partition("=")
    value = value.removeprefix("=")
    return (label, value) if label in INDEXED and value and value.strip() == value else None


def _at(record: Record, revision: int) -> Record:
    """The last matching state of an object, at the revision at which it stopped matching."""
    obj = {**record.object, "metadata": {**record.object["metadata"], "resourceVersion": str(revision)}}
    return Record(revision, record.key, orjson.dumps(obj), obj)
