"""Merge patches and strategic merge: tables for the rules, properties for what must always hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.merge_patch import difference, merge
from trainwright.api.strategic_merge import strategic_merge

leaves = st.one_of(st.booleans(), st.integers(0, 9), st.text("abc", max_size=3))
objects = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), leaves, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), st.one_of(leaves, inner, st.lists(leaves, max_size=3)), max_size=4),
    max_leaves=12,
)


def test_merge_patch_follows_rfc_7386() -> None:
    target = {"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]}
    assert merge(target, {"a": None, "b": {"c": 4, "x": 5}, "e": [9]}) == {"b": {"c": 4, "d": 3, "x": 5}, "e": [9]}
    assert target == {"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]}


@given(objects, objects)
def test_property_the_difference_turns_one_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merge(before, difference(before, after)) == after
    assert difference(before, before) == {}


def _env(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "value": name.lower()} for name in names]


@pytest.mark.parametrize(
    ("original", "patch", "order"),
    [
        ("ABC", "X", "XABC"),
        ("ABC", "CA", "BCA"),
        ("ABC", "CXA", "BCXA"),
        ("ABC", "B", "ABC"),
        ("", "AB", "AB"),
        ("AB", "", "AB"),
    ],
)
def test_the_order_of_a_merged_list_is_kubectls(original: str, patch: str, order: str) -> None:
    merged = strategic_merge({"env": _env(*original)}, {"env": _env(*patch)})
    assert "".join(entry["name"] for entry in merged["env"]) == order


def test_lists_of_named_things_merge_and_others_are_replaced() -> None:
    original = {"containers": [{"name": "node", "image": "a", "args": ["1", "2"]}], "tolerations": [{"key": "x"}]}
    patch = {"containers": [{"name": "node", "args": ["3"]}], "tolerations": [{"key": "y"}]}
    merged = strategic_merge(original, patch)
    assert merged == {"containers": [{"name": "node", "image": "a", "args": ["3"]}], "tolerations": [{"key": "y"}]}


def test_directives() -> None:
    assert strategic_merge({"env": _env("A", "B")}, {"env": [{"name": "A", "$patch": "delete"}]}) == {"env": _env("B")}
    assert strategic_merge({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"$patch": "replace", "b": "2"}}) == {
        "nodeSelector": {"b": "2"}
    }
    with pytest.raises(ValueError, match="unknown directive"):
        strategic_merge({}, {"x": {"$patch": "upsert"}})
    with pytest.raises(ValueError, match="by which the list is merged"):
        strategic_merge({"env": _env("A")}, {"env": [{"value": "x"}]})


named_lists = st.lists(st.sampled_from("ABCDEF"), unique=True, max_size=6)


@given(named_lists, named_lists)
def test_property_strategic_merge_of_lists(original: list[str], patch: list[str]) -> None:
    start = {"env": _env(*original)}
    once = strategic_merge(start, {"env": _env(*patch)})
    assert {entry["name"] for entry in once["env"]} == set(original) | set(patch)
    assert strategic_merge(start, {}) == start
    untouched = [entry["name"] for entry in once["env"] if entry["name"] not in patch]
    assert untouched == [name for name in original if name not in patch]
    assert [e["name"] for e in once["env"] if e["name"] in patch] == patch
    assert {e["name"] for e in strategic_merge(once, {"env": _env(*patch)})["env"]} == {e["name"] for e in once["env"]}
