"""Kinds that are stored as another kind and converted on read and write: events.k8s.io/v1 Event is stored as core/v1 Event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from trainwright.api import event_forms
from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.kinds import EVENT, NEW_EVENT, Kind
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.storage.object_table import Record
from trainwright.controlplane.apiserver.wire.requests import WriteOptions


@dataclass(frozen=True)
class View:
    """The conversion between a served kind and the kind it is stored as."""

    kind: Kind
    stored: Kind
    from_stored: Callable[[Obj], Obj]
    """Converts a stored object to this kind."""
    to_stored: Callable[[Obj], Obj]
    """Converts an object of this kind to the stored kind."""
    core_only_fields: Callable[[Obj], list[str]]
    """Fields of the object that the stored kind has and this kind does not."""
    problems: Callable[[Obj, Obj | None], list[Problem]]
    """Additional validation of this kind; takes the new and the old object in stored form."""

    def record(self, record: Record) -> Record:
        shown = self.from_stored(record.object)
        return Record(record.revision, record.key, orjson.dumps(shown), shown, labels=record.labels)

    def validate_and_convert(self, obj: Obj, old: Obj | None, options: WriteOptions) -> tuple[Obj, list[str]]:
        """Validate an object of this kind and convert it to the stored kind; returns warnings too. Raises BadRequest, Invalid."""
        unknown = (
            [f'unknown field "{name}"' for name in self.core_only_fields(obj)] if options.field_validation != "Ignore" else []
        )
        if unknown and options.field_validation == "Strict":
            raise BadRequest(f"strict decoding error: {', '.join(unknown)}")
        kept = self.to_stored(obj)
        if problems := self.problems(kept, old):
            raise Invalid.of(self.kind.kind, name_of(obj), problems, self.kind.group)
        return kept, unknown


_VIEWS = {
    view.kind: view
    for view in (
        View(
            NEW_EVENT,
            EVENT,
            event_forms.as_new,
            event_forms.as_stored,
            event_forms.core_only_fields,
            lambda new, old: list(event_forms.new_event_problems(new, old)),
        ),
    )
}


def view_of(kind: Kind) -> View | None:
    """The conversion for a kind; None if it is stored as itself."""
    return _VIEWS.get(kind)


def stored_kind(kind: Kind) -> Kind:
    view = _VIEWS.get(kind)
    return view.stored if view else kind
