"""YAML with the contributor of each line."""

from __future__ import annotations

from typing import Any

import yaml

from trainwright.ui.job_objects import annotated_yaml


def lines(obj: Any, tree: Any) -> list[tuple[str, str]]:
    shown = annotated_yaml(obj, tree)
    assert yaml.safe_load(shown["text"]) == obj
    owners = [shown["contributors"][index] for count, index in shown["runs"] for _ in range(count)]
    return list(zip(shown["text"].splitlines(), owners, strict=True))


def test_each_line_has_the_contributor_of_its_value() -> None:
    obj = {"a": 1, "items": [{"name": "x", "value": "v"}, {"name": "z"}], "empty": {}}
    tree = {"a": "runtime", "items": [{"name": "job", "value": "torch"}, {"name": "job"}], "empty": "default"}
    assert lines(obj, tree) == [
        ("a: 1", "runtime"),
        ("items:", ""),
        ("- name: x", "job"),
        ("  value: v", "torch"),
        ("- name: z", "job"),
        ("empty: {}", "default"),
    ]


def test_opening_lines_have_the_contributor_of_all_their_parts() -> None:
    found = lines({"a": {"b": {"c": 1}}, "d": {"e": 2, "f": 3}}, {"a": {"b": {"c": "job"}}, "d": {"e": "job", "f": "mpi"}})
    assert dict(found) == {"a:": "job", "  b:": "job", "    c: 1": "job", "d:": "", "  e: 2": "job", "  f: 3": "mpi"}


def test_further_lines_of_a_text_have_its_contributor() -> None:
    found = lines({"script": "one\ntwo\n\nthree\n", "z": "x"}, {"script": "flux", "z": "job"})
    assert [owner for line, owner in found if line != "z: x"] == ["flux"] * (len(found) - 1)
    assert found[-1] == ("z: x", "job")


def test_nested_lists_and_long_keys_keep_their_lines() -> None:
    key = "k" * 200
    found = lines({"a": [[1, 2], []], key: "v"}, {"a": [["job", "mpi"], "default"], key: "runtime"})
    assert [owner for _, owner in found] == ["", "job", "mpi", "default", "runtime", "runtime"]


def test_hostile_texts_stay_on_their_lines() -> None:
    value = "</script>\u202e\u2028\x85 a: b\x07"
    found = lines({"a": value, "b": "c"}, {"a": "job", "b": "runtime"})
    assert [owner for _, owner in found] == ["job", "runtime"]
    assert "\u202e" not in found[0][0]
