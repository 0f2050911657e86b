"""Merge patches and strategic merge: tables for the rules, properties for what must always hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.patching.json_patch import difference, merge
from trainwright.api.patching.strategic_merge import strategic_merge
from trainwright.api.schema.published import struct_named

CONTAINER, POD, METADATA, SERVICE = map(struct_named, ("Container", "PodSpec", "ObjectMeta", "Service"))

leaves = st.one_of(st.booleans(), st.integers(0, 9), st.text("abc", max_size=3))
objects = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), leaves, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), st.one_of(leaves, inner, st.lists(leaves, max_size=3)), max_size=4),
    max_leaves=12,
)


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
    merged = strategic_merge({"env": _env(*original)}, {"env": _env(*patch)}, CONTAINER)
    assert "".join(entry["name"] for entry in merged["env"]) == order


def test_directives() -> None:
    assert strategic_merge({"env": _env("A", "B")}, {"env": [{"name": "A", "$patch": "delete"}]}, CONTAINER) == {"env": _env("B")}
    assert strategic_merge({"nodeSelector": {"a": "1"}}, {"nodeSelector": {"$patch": "replace", "b": "2"}}, POD) == {
        "nodeSelector": {"b": "2"}
    }
    with pytest.raises(ValueError, match="unknown patch type: upsert in map: map"):
        strategic_merge({}, {"x": {"$patch": "upsert"}}, CONTAINER)
    with pytest.raises(ValueError, match="does not contain declared merge key: name"):
        strategic_merge({"env": _env("A")}, {"env": [{"value": "x"}]}, CONTAINER)


def test_element_order_and_deletion_from_plain_lists() -> None:
    order = [{"name": name} for name in "CAB"]
    merged = strategic_merge({"env": _env("A", "B")}, {"env": _env("C"), "$setElementOrder/env": order}, CONTAINER)
    assert [entry["name"] for entry in merged["env"]] == ["C", "A", "B"]
    merged = strategic_merge({"env": _env("A", "B", "C")}, {"$setElementOrder/env": order}, CONTAINER)
    assert [entry["name"] for entry in merged["env"]] == ["C", "A", "B"]
    held = {"finalizers": ["a/x", "b/y"]}
    assert strategic_merge(held, {"finalizers": ["c/z"]}, METADATA)["finalizers"] == ["c/z", "a/x", "b/y"]
    assert strategic_merge(held, {"$deleteFromPrimitiveList/finalizers": ["a/x"]}, METADATA) == {"finalizers": ["b/y"]}


def test_retained_keys_clear_the_others() -> None:
    volume = {"volumes": [{"name": "v", "emptyDir": {}}]}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    both = strategic_merge(volume, {"volumes": [claim]}, POD)
    assert both == {"volumes": [{"name": "v", "emptyDir": {}, "persistentVolumeClaim": {"claimName": "c"}}]}
    only = strategic_merge(volume, {"volumes": [{**claim, "$retainKeys": ["name", "persistentVolumeClaim"]}]}, POD)
    assert only == {"volumes": [claim]}
    with pytest.raises(ValueError, match="does not retain"):
        strategic_merge(volume, {"volumes": [{**claim, "$retainKeys": ["name"]}]}, POD)


def test_elements_that_share_a_key_are_kept() -> None:
    ports = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    merged = strategic_merge({"ports": ports}, {"ports": [{"containerPort": 53, "name": "dns"}]}, CONTAINER)
    assert merged == {"ports": [{**ports[0], "name": "dns"}, ports[1]]}
    assert strategic_merge({"spec": {"ports": [{"port": 80}]}}, {"spec": {"ports": [{"port": 80, "name": "web"}]}}, SERVICE) == {
        "spec": {"ports": [{"port": 80, "name": "web"}]}
    }


def test_lists_of_one_name_merge_by_their_type() -> None:
    policy = struct_named("NetworkPolicyIngressRule")
    assert strategic_merge({"ports": [{"port": 80}]}, {"ports": [{"port": 443}]}, policy) == {"ports": [{"port": 443}]}


named_lists = st.lists(st.sampled_from("ABCDEF"), unique=True, max_size=6)


@given(named_lists, named_lists)
def test_property_strategic_merge_of_lists(original: list[str], patch: list[str]) -> None:
    start = {"env": _env(*original)}
    once = strategic_merge(start, {"env": _env(*patch)}, CONTAINER)
    assert {entry["name"] for entry in once["env"]} == set(original) | set(patch)
    assert strategic_merge(start, {}, CONTAINER) == start
    untouched = [entry["name"] for entry in once["env"] if entry["name"] not in patch]
    assert untouched == [name for name in original if name not in patch]
    assert [e["name"] for e in once["env"] if e["name"] in patch] == patch
    assert {e["name"] for e in strategic_merge(once, {"env": _env(*patch)}, CONTAINER)["env"]} == {e["name"] for e in once["env"]}


containers = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["a", "b"]),
        "env": named_lists.map(lambda names: _env(*names)),
        "args": st.lists(st.sampled_from("xyz"), max_size=3),
        "securityContext": st.dictionaries(st.sampled_from(["runAsUser", "runAsGroup"]), st.integers(0, 3), max_size=2),
    },
)
pods = st.dictionaries(st.sampled_from("npq"), containers, max_size=3).map(
    lambda found: {"containers": [{"name": name, **rest} for name, rest in found.items()]}
)


@pytest.mark.medium
@given(pods, pods)
def test_property_a_patch_without_nulls_is_idempotent(original: dict[str, Any], patch: dict[str, Any]) -> None:
    once = strategic_merge(original, patch, POD)
    assert _by_name(strategic_merge(once, patch, POD)) == _by_name(once)
    assert strategic_merge(original, {}, POD) == original


@pytest.mark.medium
@given(pods, pods, st.randoms())
def test_property_the_order_of_unrelated_keys_does_not_matter(
    original: dict[str, Any], patch: dict[str, Any], random: Any
) -> None:
    shuffled = {"containers": [_shuffled(container, random) for container in patch["containers"]]}
    assert strategic_merge(original, shuffled, POD) == strategic_merge(original, patch, POD)


def _shuffled(mapping: dict[str, Any], random: Any) -> dict[str, Any]:
    return dict(random.sample(sorted(mapping.items(), key=lambda item: item[0]), len(mapping)))


def _by_name(value: Any) -> Any:
    """Lists of named things without their order: a second patch moves what the first has added."""
    if isinstance(value, list):
        items = [_by_name(item) for item in value]
        return sorted(items, key=lambda i: i["name"]) if all(isinstance(i, dict) and "name" in i for i in items) else items
    return {key: _by_name(item) for key, item in value.items()} if isinstance(value, dict) else value
