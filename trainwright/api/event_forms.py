"""The two versions of an Event: core/v1, which is stored, and events.k8s.io/v1, which newer clients use."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.api.errors import Problem
from trainwright.api.kinds import EVENT, NEW_EVENT
from trainwright.api.objects import Obj

_NEW_NAMES = {
    "message": "note",
    "involvedObject": "regarding",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}
_LEFT_OUT_EMPTY = ("reportingController", "reportingInstance", "note")
_UNSET: Obj = {"firstTimestamp": None, "lastTimestamp": None, "count": 0, "source": {}}
"""Fields of core/v1 that events.k8s.io/v1 renames."""
_FIXED = (
    "involvedObject",
    "reason",
    "reportingComponent",
    "reportingInstance",
    "action",
    "type",
    "eventTime",
    "related",
    *_UNSET,
)

FIELD_LABELS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "reason",
        "reportingController",
        "type",
        *(f"regarding.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")),
    }
)
"""Field selectors of events.k8s.io/v1."""


def as_new(event: Obj) -> Obj:
    """A stored event as events.k8s.io/v1."""
    renamed = {_NEW_NAMES.get(name, name): value for name, value in event.items()}
    shown = {name: value for name, value in renamed.items() if value != "" or name not in _LEFT_OUT_EMPTY}
    return {**shown, "apiVersion": NEW_EVENT.api_version}


def as_stored(event: Obj) -> Obj:
    """An events.k8s.io/v1 event as core/v1. Fields that only core/v1 has are dropped; see `core_only_fields`."""
    known = {name: value for name, value in event.items() if name not in _NEW_NAMES}
    return {**{_OLD_NAMES.get(name, name): value for name, value in known.items()}, "apiVersion": EVENT.api_version}


def core_only_fields(event: Obj) -> list[str]:
    """Fields of core/v1 in an events.k8s.io/v1 event, where they are unknown."""
    return [name for name in _NEW_NAMES if name in event]


def new_event_problems(event: Obj, old: Obj | None) -> Iterator[Problem]:
    """The validation of events.k8s.io/v1, on the stored form, in addition to that of every event."""
    if old is not None:
        for name in _FIXED:
            if _value(event, name) != _value(old, name):
                yield Problem(_shown(name), f"Invalid value: {_text(event.get(name))}: field is immutable")
        if event.get("series") != old.get("series"):
            yield from _series_problems(event)
        return
    yield from _series_problems(event)
    if not event.get("eventTime"):
        yield Problem("eventTime", "Required value", "FieldValueRequired")
    if event.get("type") not in ("Normal", "Warning"):
        yield Problem("type", f'Invalid value: "": has invalid value: {event.get("type") or ""}')
    for name in _UNSET:
        if _value(event, name):
            yield Problem(name, 'Invalid value: "": needs to be unset')


def _series_problems(event: Obj) -> Iterator[Problem]:
    series = event.get("series")
    if not isinstance(series, dict):
        return
    if not isinstance(series.get("count"), int) or series["count"] < 2:
        yield Problem("series.count", 'Invalid value: "": should be at least 2')
    if not series.get("lastObservedTime"):
        yield Problem("series.lastObservedTime", "Required value", "FieldValueRequired")


def _value(event: Obj, name: str) -> object:
    return event.get(name) or None


def _shown(name: str) -> str:
    return {"reportingComponent": "reportingController"}.get(name, name)


def _text(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else "null" if value is None else "object"


def reporting_problems(event: Obj, controller_field: str) -> Iterator[Problem]:
    """An event with an `eventTime` must name its reporting controller and instance."""
    limits = (
        (controller_field, "reportingComponent", 0),
        ("reportingInstance", "reportingInstance", 128),
        ("action", "action", 128),
    )
    for shown, name, most in (*limits, ("reason", "reason", 128)):
        value = event.get(name) or ""
        if not value:
            yield Problem(shown, "Required value", "FieldValueRequired")
        elif most and len(value) > most:
            yield Problem(shown, f'Invalid value: "": can have at most {most} characters')
    if len(event.get("message") or "") > 1024:
        yield Problem("message", 'Invalid value: "": can have at most 1024 characters')
