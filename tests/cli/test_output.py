"""What `--output json` prints can be read by every program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainwright.cli.output import json_text


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"loss": float("nan"), "best": float("-inf")}, {"loss": None, "best": None}),
        ({"name": "a\ud800b"}, {"name": "a\ufffdb"}),
        ({"name": "é\x1b[31m", "steps": 3}, {"name": "é\x1b[31m", "steps": 3}),
    ],
)
def test_json_is_read_by_strict_programs(value: Any, read: Any) -> None:
    text = json_text(value)
    assert json.loads(text.encode(), parse_constant=pytest.fail) == read
    assert "\x1b" not in text
