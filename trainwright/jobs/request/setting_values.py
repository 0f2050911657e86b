"""Parses setting values as orchestrators pass them: JSON text, integers as floats, zeros and empty texts for None; and the setting
`topology`. Pure.

KFP passes numbers inside dicts and lists as floats and has no None; Airflow templates render to text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trainwright.text.text_input import NotJson, Unreadable, read_json

Variables = dict[str, str | dict[str, Any]]
"""Maps a name to a value, or to a reference such as `{"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}`."""
_MAX_DEPTH = 100
EXCLUSIVE_ANNOTATION = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
_LABEL_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_TOPOLOGY = re.compile(rf"(required|preferred|exclusive):({_LABEL_KEY})|unconstrained")


def parse_structure(value: Any) -> Any:
    """Return a dict or list: text is parsed as JSON, else as YAML, and integral floats become integers, at any depth.

    Raises ValueError, also for types that JSON does not have.
    """
    return floats_to_integers(parse_text(value) if isinstance(value, str) else value)


def parse_object(value: Any) -> Any:
    """Return an object, see `parse_structure`; an empty one for None and empty text."""
    return parse_structure(value) or {}


def parse_arguments(value: Any) -> Any:
    """Return the arguments of a function: an object, whose values its annotations convert, or its JSON or YAML text."""
    return (parse_text(value) if isinstance(value, str) else value) or {}


def parse_group(value: Any) -> Any:
    """Return a group of settings: its JSON text as an object, anything else as it is."""
    if not isinstance(value, str):
        return value
    return {} if (found := parse_text(value)) is None else found


def parse_as(cls: Any, value: Any) -> Any:
    """Return what a class parses of a text, an object of the class as it is, and None for an empty text. Raises ValueError."""
    if value is None or value == "" or isinstance(value, cls):
        return value or None
    if not isinstance(value, str):
        raise ValueError("expected text")
    return cls.parse(value)


def parse_list(value: Any) -> Any:
    """Return a list, see `parse_structure`; an empty one for None and empty text."""
    return parse_structure(value) or []


def parse_items(value: Any) -> Any:
    """Return a list; one object is a list of it: XCom has it of a task that was mapped over one value."""
    found = parse_structure(value)
    return [found] if isinstance(found, dict) else found or []


def parse_text(text: str) -> Any:
    """Parse JSON, else YAML; empty text is None. Raises ValueError."""
    if not text.strip():
        return None
    try:
        return read_json(text)
    except NotJson as error:
        not_json = error
    except Unreadable as error:
        raise ValueError(error.message) from None
    from trainwright.text.yaml_reader import read_yaml  # only here: most values are not YAML, and a DAG is parsed without it

    try:
        values = read_yaml(text)
    except Unreadable as error:
        meant = not_json if text.lstrip().startswith(("{", "[")) else error
        raise ValueError(f"neither JSON nor YAML: {meant.message}") from None
    if len(values) > 1:
        raise ValueError(f"expected one YAML document, found {len(values)}")
    return values[0] if values else None


def floats_to_integers(value: Any, depth: int = 0) -> Any:
    """Replace floats such as 4.0 by integers: JSON has one number type, and Kubernetes rejects 4.0 for an integer.

    Raises ValueError for types that JSON does not have.
    """
    if depth > _MAX_DEPTH:
        raise ValueError(f"more than {_MAX_DEPTH} levels deep")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        if odd := [type(key).__name__ for key in value if not isinstance(key, str)]:
            raise ValueError(f"a key is of type {odd[0]}, not a string")
        return {key: floats_to_integers(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [floats_to_integers(entry, depth + 1) for entry in value]
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"JSON has no type {type(value).__name__}")
    return value


def seconds_of(value: Any) -> Any:
    """Return a `timedelta` as whole seconds, rounded up; anything else as it is. Raises ValueError as `number_of`."""
    return math.ceil(value.total_seconds()) if isinstance(value, timedelta) else number_of(value)


def deadline_of(value: Any) -> Any:
    """Return None for an empty text, else the seconds."""
    return None if value == "" else seconds_of(value)


def number_of(value: Any) -> Any:
    """Return a number or its text as it is. Raises ValueError for what Python would take for one: True, and "1_0"."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise ValueError(f"expected a number, not {value!r:.40}")
    return value


def optional_number(value: Any) -> Any:
    """Return None for an empty text, and for 0 and "0", which mean None where a parameter cannot be omitted.

    Raises ValueError as `number_of`.
    """
    return None if number_of(value) in ("", 0, "0", None) else value


def normalize_resources(value: Any) -> Any:
    """Return resources as `{"limits": ..., "requests": ...}`; without these keys, amounts apply to both. Amounts become text."""
    if not isinstance(value, dict) or not value:
        return value
    if not any(isinstance(entry, dict) for entry in value.values()):
        value = {"limits": value, "requests": value}
    return {
        group: {name: _amount_text(amount) for name, amount in entries.items()} if isinstance(entries, dict) else entries
        for group, entries in value.items()
    }


def _amount_text(amount: Any) -> Any:
    return str(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else amount


@dataclass(frozen=True)
class Topology:
    """`required`, `preferred` and `unconstrained` are modes of Kueue, `exclusive` of JobSet; `key` is a node label."""

    mode: str
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Parse `required:KEY`, `preferred:KEY`, `exclusive:KEY` or `unconstrained`. Raises ValueError."""
        match = _TOPOLOGY.fullmatch(text)
        if match is None:
            raise ValueError(
                f"topology: {text!r} is not one of required:KEY, preferred:KEY, unconstrained and exclusive:KEY, "
                "where KEY is a node label such as topology.kubernetes.io/zone"
            )
        return cls(match[1] or "unconstrained", match[2] or "")

    def __str__(self) -> str:
        return f"{self.mode}:{self.key}" if self.key else self.mode

    @property
    def is_kueue_mode(self) -> bool:
        return self.mode != "exclusive"

    def pod_annotations(self) -> dict[str, str]:
        return {_KUEUE_TOPOLOGY.format(self.mode): self.key or "true"} if self.is_kueue_mode else {}

    def jobset_annotations(self) -> dict[str, str]:
        return {} if self.is_kueue_mode else {EXCLUSIVE_ANNOTATION: self.key}
