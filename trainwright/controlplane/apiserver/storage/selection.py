"""Which objects a list or a watch is about: a namespace, a label selector and a field selector.

For a watch, an object that enters or leaves the selection was, to this watcher, added or deleted.
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
"""Built-in kinds with fields of their own to select by; they refuse others in words of their own."""


@dataclass(frozen=True)
class Selection:
    """A parsed pair of selectors; `everything` when both are empty."""

    everything: bool
    labels: Selector
    fields: Selector
    indexed: tuple[str, str] | None = None
    """A label that everything selected has, where the store finds objects by it."""
    view: View | None = None
    """How the objects are shown, where they are stored in another form."""

    @classmethod
    def parse(cls, strategy: Strategy, labels: str = "", fields: str = "") -> Selection:
        """Raises BadRequest for text that is no selector, or a field that objects of this kind cannot be selected by."""
        try:
            terms = field_terms(fields)
        except BadRequest:
            part = next((term for term in fields.split(",") if "=" not in term), fields)
            raise BadRequest(f"invalid selector: '{fields}'; can't understand '{part}'") from None
        for path, _, _ in terms:
            if path not in strategy.selectable:
                raise BadRequest(_unsupported(strategy, path))
        everything = not (labels.strip() or fields.strip())
        return cls(everything, label_selector(labels), field_selector(fields), _indexed(labels), view_of(strategy.kind))

    def shown(self, record: Record) -> Record | None:
        """A stored object as it is seen, or nothing where it is not selected."""
        record = self.view.record(record) if self.view else record
        return record if self.matches(record.object) else None

    def matches(self, obj: Obj) -> bool:
        return self.everything or (self.labels(obj) and self.fields(obj))

    def seen(self, event: Event) -> tuple[str, Record] | None:
        """What the event is to a watcher of this selection: ADDED, MODIFIED, DELETED and an object, or nothing."""
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
    """The state in which an object was last seen here, with the version of the change that took it away."""
    obj = {**record.object, "metadata": {**record.object["metadata"], "resourceVersion": str(revision)}}
    return Record(revision, record.key, orjson.dumps(obj), obj)


def _unsupported(strategy: Strategy, path: str) -> str:
    if strategy.custom or strategy.kind in _OWN_FIELDS:
        return f"field label not supported: {path}"
    if strategy.kind == JOB:
        return f'field label "{path}" not supported for Job'
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
