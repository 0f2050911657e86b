"""Kinds that are another form of what is stored as another kind: read and written through it, kept once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from trainwright.api import event_forms
from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.kinds import EVENT, NEW_EVENT, Kind
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.storage.records import Record
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions


@dataclass(frozen=True)
class View:
    """One such kind."""

    kind: Kind
    stored: Kind
    shown: Callable[[Obj], Obj]
    """The object of this kind that a stored one is."""
    kept: Callable[[Obj], Obj]
    """The stored form of an object of this kind."""
    strangers: Callable[[Obj], list[str]]
    """Fields that the stored form knows and this kind does not."""
    problems: Callable[[Obj, Obj | None], list[Problem]]
    """What this kind asks beyond the rules of the stored one; in the stored form, with what it replaces."""

    def record(self, record: Record) -> Record:
        shown = self.shown(record.object)
        return Record(record.revision, record.key, orjson.dumps(shown), shown, labels=record.labels)

    def taken(self, obj: Obj, old: Obj | None, options: WriteOptions) -> tuple[Obj, list[str]]:
        """An object of this kind in the stored form, with warnings. Raises BadRequest, Invalid."""
        unknown = [f'unknown field "{name}"' for name in self.strangers(obj)] if options.strictness != "Ignore" else []
        if unknown and options.strictness == "Strict":
            raise BadRequest(f"strict decoding error: {', '.join(unknown)}")
        kept = self.kept(obj)
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
            event_forms.strangers,
            lambda new, old: list(event_forms.new_event_problems(new, old)),
        ),
    )
}


def view_of(kind: Kind) -> View | None:
    """How a kind is stored; None for one that is stored as it is."""
    return _VIEWS.get(kind)


def stored_kind(kind: Kind) -> Kind:
    view = _VIEWS.get(kind)
    return view.stored if view else kind
