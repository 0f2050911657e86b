"""Values of settings as orchestrators hand them on: JSON text, numbers that became floats, zeros and empty texts for nothing. Pure.

KFP sends numbers inside dicts and lists as floats and has no None; a template of Airflow gives text.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from trainwright.api.documents import ManifestLoader

_MOST_DEPTH = 100


def structured(value: Any) -> Any:
    """A dict or list: text is read as JSON, else as YAML, and whole floats become integers, at any depth.

    Raises ValueError, also for what JSON does not have.
    """
    return whole_numbers(parsed(value) if isinstance(value, str) else value)


def parsed(text: str) -> Any:
    """JSON, else YAML; empty text is None. Raises ValueError."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        raise ValueError("neither JSON nor YAML: too deep") from None
    try:
        return yaml.load(text, ManifestLoader)  # noqa: S506  a safe loader
    except yaml.YAMLError as error:
        raise ValueError(f"neither JSON nor YAML: {getattr(error, 'problem', None) or type(error).__name__}") from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # of a tag that does not fit its value
        raise ValueError("neither JSON nor YAML") from None


def whole_numbers(value: Any, depth: int = 0) -> Any:
    """The same with 4.0 as 4: JSON has one kind of number, and Kubernetes takes no 4.0 for an integer.

    Raises ValueError for what JSON does not have.
    """
    if depth > _MOST_DEPTH:
        raise ValueError(f"more than {_MOST_DEPTH} levels deep")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        if odd := [type(key).__name__ for key in value if not isinstance(key, str)]:
            raise ValueError(f"a key is {odd[0]}, not a text")
        return {key: whole_numbers(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [whole_numbers(entry, depth + 1) for entry in value]
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"{type(value).__name__} is nothing that JSON has")
    return value


def optional_number(value: Any) -> Any:
    """None for nothing: an empty text, and 0 or "0", which stand for it where a parameter cannot be left out."""
    return None if value in ("", 0, "0", None) else value


def amounts(value: Any) -> Any:
    """Resources as `{"limits": ..., "requests": ...}`: amounts without those words are both. Amounts become text."""
    if not isinstance(value, dict) or not value:
        return value
    if not any(isinstance(entry, dict) for entry in value.values()):
        value = {"limits": value, "requests": value}
    return {
        group: {name: _amount(amount) for name, amount in entries.items()} if isinstance(entries, dict) else entries
        for group, entries in value.items()
    }


def _amount(amount: Any) -> Any:
    return str(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else amount
