"""Values that every reader of JSON accepts."""

from __future__ import annotations

import json
import math

from trainwright.api.finite_json import MAX_DEPTH, finite_json


def test_numbers_that_are_not_finite_become_null_with_their_path() -> None:
    found = finite_json({"loss": math.nan, "deep": [{"a": math.inf}, 1.5], "big": 10**400, "ok": 2**60})
    assert found.value == {"loss": None, "deep": [{"a": None}, 1.5], "big": None, "ok": 2**60}
    assert [change.partition(":")[0] for change in found.changed] == ["loss", "deep[0].a", "big"]


def test_lone_surrogates_are_replaced_in_values_and_keys() -> None:
    found = finite_json({"\ud800": "a\udfff", "emoji": "🚀"})
    assert found.value == {"\ufffd": "a\ufffd", "emoji": "🚀"}
    json.dumps(found.value, ensure_ascii=False).encode()


def test_deep_nesting_is_cut() -> None:
    text = json.dumps(finite_json(json.loads("[" * 900 + "]" * 900)).value)
    assert text.count("[") == MAX_DEPTH


def test_a_value_without_problems_is_unchanged() -> None:
    value = {"a": [1, 0.5, None, True, "ü"]}
    assert finite_json(value) == (value, ())
