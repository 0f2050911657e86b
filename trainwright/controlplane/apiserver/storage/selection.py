"""Applies label and field selectors to lists and watches.

In a watch, an object that starts or stops matching the selectors is reported as ADDED or DELETED.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import orjson

from trainwright.api.errors import BadRequest
from trainwright.api.kinds import EVENT, JOB, NAMESPACE, NODE, POD, SECRET, SERVICE
from trainwright.api.objects import Obj
from trainwright.api.selectors.selection import Selector, field_selector, field_terms, label_selector
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.storage.collection import INDEXED
from trainwright.controlplane.apiserver.storage.events import Event
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.storage.views import View, view_of

_OWN_FIELDS = (POD, NODE, EVENT, NAMESPACE, SECRET, SERVICE)
"""Built-in kinds with their own field selectors and a different error message for unsupported fields."""


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
        except BadRequest:
            part = next((term for term in fields.split(",") if "=" not in term), fields)
            raise BadRequest(f"invalid selector: '{fields}'; can't understand '{part}'") from None
        for path, _, _ in terms:
            if path not in strategy.selectable_fields:
                raise BadRequest(_unsupported(strategy, path))
        everything = not (labels.strip() or fields.strip())
        return cls(everything, label_selector(labels), field_selector(fields), _indexed(labels), view_of(strategy.kind))

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


def _indexed(labels: str) -> tuple[str, str] | None:
    label, _, value = labels.partition(",")[0].partition("=")
    value = value.removeprefix("=")
    return (label, value) if label in INDEXED and value and value.strip() == value else None


def _at(record: Record, revision: int) -> Record:
    """The last matching state of an object, at the revision at which it stopped matching."""
    obj = {**record.object, "metadata": {**record.object["metadata"], "resourceVersion": str(revision)}}
    return Record(revision, record.key, orjson.dumps(obj), obj)


def _unsupported(strategy: Strategy, path: str) -> str:
    if strategy.custom or strategy.kind in _OWN_FIELDS:
        return f"field label not supported: {path}"
    if strategy.kind == JOB:
        return f'field label "{path}" not supported for Job'
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
