"""What the fields of objects are for, for `kubectl explain`: texts of Kubernetes, JobSet and Kubeflow Trainer (Apache License 2.0).

They are in a file by the name of a type, or of the field that holds it. `tests/recorders/field_descriptions.py` writes it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("descriptions.json")


def description_of(owner: str, field: str) -> str:
    """Return the text about a field of a type, or of the field that holds it; empty if there is none."""
    return _texts().get(owner, {}).get(field, "")


@cache
def _texts() -> dict[str, dict[str, str]]:
    texts: dict[str, dict[str, str]] = json.loads(FILE.read_bytes())
    return texts
