"""Turns what a training function returns into JSON: tensors and arrays become numbers and lists, dates become text.

Runs in the training pod after the function, in any image with Python 3.8 or newer: only the standard library is imported. For a value
that JSON cannot have, the reason is reported instead, and the step fails with it: the training itself has succeeded, and to run it
again would not help.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

UNREPORTABLE = "trainwright.dev/unreportable"
"""Key of the reason, in place of the result."""
MAX_DEPTH = 90
"""Kubeflow Pipelines reads outputs of at most 100 levels."""
_NO_DATE = "NaT"
_OTHER_ARRAYS = {"m": "timedelta", "c": "complex", "V": "void", "S": "bytes"}


def json_text(value: Any, function: str, max_bytes: int) -> str:
    """Return a returned value as JSON, or why it cannot be reported.

    NaN and infinity stay: the step that reads them makes them null and says so.
    """
    try:
        text = json.dumps(_plain(value, "", function))
        if len(text) > max_bytes:
            raise _Unreportable(f"the return value has more than {max_bytes // 1024} KiB of JSON; write large results to a file")
    except _Unreportable as error:
        message = f"{function}: {error}"
        sys.stderr.write(message + "\n")
        return json.dumps({UNREPORTABLE: message})
    return text


class _Unreportable(Exception):
    """A value has no form in JSON."""


def _plain(value: Any, path: str, function: str, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise _Unreportable(f"the value of {path[:80]} is nested more than {MAX_DEPTH} levels deep and cannot be reported")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return _date(value.isoformat(), path, function)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, dict):
        return _object(value, path, function, depth)
    if isinstance(value, (list, tuple)):
        return [_plain(entry, f"{path}[{at}]", function, depth + 1) for at, entry in enumerate(value)]
    return _array(value, path, function, depth)


def _object(value: dict[Any, Any], path: str, function: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, entry in value.items():
        if type(key).__module__ == "numpy" and hasattr(key, "item"):
            key = key.item()
        if key is not None and not isinstance(key, (str, int, float)):
            raise _unreportable(key, f"{path}.{key!r} (the key)".lstrip("."))
        name = key if isinstance(key, str) else json.dumps(key)
        if name in found:
            raise _Unreportable(f"two keys of {path or 'the return value'} are {name!r} as text; rename one of them")
        found[name] = _plain(entry, f"{path}.{name}".lstrip("."), function, depth + 1)
    return found


def _array(value: Any, path: str, function: str, depth: int) -> Any:
    """Return a tensor, an array or a number of a framework: all of them have `tolist`, or `numpy` that returns one."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M":
        return _dates(value.astype(str).tolist(), path, function)
    if kind in _OTHER_ARRAYS:
        raise _unreportable(value, path)
    if not hasattr(value, "tolist") and callable(getattr(value, "numpy", None)):
        value = value.numpy()
    if callable(getattr(value, "tolist", None)):
        listed = value.tolist()
        if type(listed) is not type(value):
            return _plain(listed, path, function, depth + 1)
    raise _unreportable(value, path)


def _dates(texts: Any, path: str, function: str) -> Any:
    if isinstance(texts, list):
        return [_dates(one, f"{path}[{at}]", function) for at, one in enumerate(texts)]
    return _date(texts, path, function)


def _date(text: str, path: str, function: str) -> str | None:
    if text != _NO_DATE:
        return text
    sys.stderr.write(f"{function}: warning: {path or 'the return value'} is not a date and is reported as null\n")
    return None


def _unreportable(value: Any, path: str) -> _Unreportable:
    where = f"the value of {path}" if path else "the return value"
    return _Unreportable(
        f"{where} is of type {type(value).__name__}, which cannot be reported; "
        "return numbers, text, lists, dicts, tensors, arrays or dates"
    )
