"""Tells numbers in JSON that others have written from what only looks like one: Python's JSON has NaN, and true is 1."""

from __future__ import annotations

import math
from typing import Any


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
