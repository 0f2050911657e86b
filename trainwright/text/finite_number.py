"""Tells numbers in JSON that others have written from what only looks like one: Python's JSON has NaN, and true is 1."""

from __future__ import annotations

import math
from typing import Any


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, as a float at least."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False
