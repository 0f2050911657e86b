"""Sets of fields behave as sets, and ownership as apply promises, whatever the objects look like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import Conflict
from trainwright.api.kinds import CONFIG_MAP, POD
from trainwright.api.schema.types import STRING, ListOf, MapOf, Struct
from trainwright.controlplane.apiserver.managed_fields.field_diff import changes, fields_of, merged, pruned
from trainwright.controlplane.apiserver.managed_fields.field_set import (
    MEMBER,
    Fields,
    difference,
    intersection,
    paths,
    shown,
    union,
)
from trainwright.controlplane.apiserver.managed_fields.managed_writes import schema_of
from trainwright.controlplane.apiserver.managed_fields.managers import FieldManager, ManagedFields

_ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"'])


def _nodes() -> Any:
    return st.recursive(
        st.just({}),
        lambda inner: st.builds(
            lambda children, member: {**children, MEMBER: {}} if member and children else children,
            st.dictionaries(_ELEMENTS, inner, min_size=1, max_size=3),
            st.booleans(),
        ),
        max_leaves=8,
    )


_SETS = st.dictionaries(_ELEMENTS, _nodes(), max_size=3)


def _members(fields: Fields) -> set[tuple[str, ...]]:
    return set(paths(fields))


@pytest.mark.medium
@given(_SETS, _SETS)
def test_sets_of_fields_are_sets_of_paths(one: Fields, other: Fields) -> None:
    assert _members(union(one, other)) == _members(one) | _members(other)
    assert _members(intersection(one, other)) == _members(one) & _members(other)
    assert _members(difference(one, other)) == _members(one) - _members(other)


@pytest.mark.medium
@given(_SETS, _SETS)
def test_taking_away_and_putting_back_changes_nothing(one: Fields, other: Fields) -> None:
    assert union(difference(one, other), intersection(one, other)) == one
    assert difference(one, one) == {} == intersection(one, {})


_TEXTS = st.sampled_from(["1", "2"])
_ITEM = st.fixed_dictionaries({"name": st.sampled_from("xyz")}, optional={"value": _TEXTS, "other": _TEXTS})
_OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "data": st.dictionaries(st.sampled_from("kl"), _TEXTS, max_size=2),
        "list": st.lists(_ITEM, max_size=3, unique_by=lambda item: item["name"]),
        "set": st.lists(st.sampled_from("abc"), max_size=3, unique=True),
        "whole": st.lists(_TEXTS, max_size=2),
    },
)
SHAPE = Struct(
    {
        "data": MapOf(STRING),
        "list": ListOf(Struct({"name": STRING, "value": STRING, "other": STRING}), keys=("name",)),
        "set": ListOf(STRING, distinct=True),
        "whole": ListOf(STRING),
        "metadata": Struct({}),
    }
)


@given(_OBJECTS, _OBJECTS)
def test_merge_sets_the_configuration_and_removes_nothing(live: Any, config: Any) -> None:
    both = merged(SHAPE, live, config)
    assert merged(SHAPE, both, config) == both
    lost = changes(SHAPE, live, both).removed
    assert lost == {}


def _in_order(obj: Any) -> Any:
    lists = {key: sorted(obj[key], key=str) for key in ("set", "list") if key in obj}
    return {**obj, **lists}


@given(_OBJECTS, _OBJECTS)
def test_changes_name_everything_and_nothing_else(old: Any, new: Any) -> None:
    found = changes(SHAPE, old, new)
    assert not found or old != new
    both = _in_order(merged(SHAPE, old, new))  # a set, or a list by key, in another order has no other fields
    assert both == _in_order(old) if found.added == found.modified == {} else both != _in_order(old)
    assert not intersection(found.added, found.removed)
    back = changes(SHAPE, new, old)
    assert (found.added, found.removed, found.modified) == (back.removed, back.added, back.modified)


@given(_OBJECTS)
def test_applying_nothing_removes_everything_applied_before(config: Any) -> None:
    me = FieldManager("me", "Apply", "v1")
    made, owners = ManagedFields().applied(SHAPE, {"metadata": {}}, config, me, "1", yielded={})
    left, rest = owners.applied(SHAPE, made, {}, me, "2", yielded={})
    assert {key: value for key, value in left.items() if value not in ({}, [])} == {}
    assert not rest.entries


@given(_OBJECTS, _OBJECTS)
def test_appliers_conflict_only_where_they_disagree(one: Any, other: Any) -> None:
    first, second = (FieldManager(name, "Apply", "v1") for name in ("one", "two"))
    made, owners = ManagedFields().applied(SHAPE, {"metadata": {}}, one, first, "1", yielded={})
    found = changes(SHAPE, made, merged(SHAPE, made, other))
    disputed = intersection(fields_of(SHAPE, one), union(found.added, found.modified))
    if disputed:
        with pytest.raises(Conflict) as caught:
            owners.applied(SHAPE, made, other, second, "2", yielded={})
        told = {cause["field"] for cause in caught.value.details["causes"]}
        assert told == {shown(path) for path in paths(disputed)}
    forced, after = owners.applied(SHAPE, made, other, second, "2")
    assert merged(SHAPE, forced, other) == forced
    assert after.equals_ignoring_time(ManagedFields.of(after.encoded()))


@given(_OBJECTS, _OBJECTS)
def test_a_writer_owns_what_it_changed_and_nobody_else_does(old: Any, new: Any) -> None:
    maker, writer = FieldManager("maker", "Update", "v1"), FieldManager("writer", "Update", "v1")
    owners = ManagedFields().written(SHAPE, {}, old, maker, "1").written(SHAPE, old, new, writer, "2")
    found = changes(SHAPE, old, new)
    entries = {entry.owner.manager: entry.fields for entry in owners.entries.values()}
    assert entries.get("writer", {}) == union(found.added, found.modified)
    assert not intersection(entries.get("maker", {}), union(found.added, union(found.modified, found.removed)))


_LABELS = st.dictionaries(st.sampled_from("ab"), _TEXTS, max_size=2)
_NEW = st.builds(
    lambda content, extra, labels, ports: {
        **content,
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": {"name": "x", "uid": "1", **({"labels": labels} if labels is not None else {})},
        "spec": {"containers": [{"name": "main", "ports": ports}], "template": content, **extra},
    },
    _OBJECTS,
    _OBJECTS,
    st.none() | _LABELS,
    st.lists(st.fixed_dictionaries({"containerPort": st.sampled_from([1, 2])}), max_size=2, unique_by=str),
)
_DEEP = Struct(
    {
        **SHAPE.fields,
        "metadata": Struct({"name": STRING, "uid": STRING, "labels": MapOf(STRING)}),
        "spec": Struct({**SHAPE.fields, "containers": schema_of(POD).fields["spec"].fields["containers"], "template": SHAPE}),  # type: ignore[attr-defined]
        "atomic": Struct({"a": STRING}, atomic=True),
    }
)


@pytest.mark.medium
@given(
    _NEW, st.sampled_from([{}, {"a": "1"}]), st.sampled_from([{}, {"spec": {}}, {"spec": {"containers": None, "template": {}}}])
)
def test_the_author_of_a_new_object_owns_what_a_write_of_it_would_give(new: Any, atomic: Any, blank: Any) -> None:
    author, blank, new = FieldManager("me", "Update", "v1"), {"metadata": {}, "atomic": {}, **blank}, {**new, "atomic": atomic}
    assert ManagedFields().created(_DEEP, blank, new, author, "1") == ManagedFields().written(_DEEP, blank, new, author, "1")


def test_paths_are_shown_as_messages_write_them() -> None:
    path = ("f:spec", "f:containers", 'k:{"containerPort":80,"protocol":"TCP"}', "f:image", 'v:"a"')
    assert shown(path) == '.spec.containers[containerPort=80,protocol="TCP"].image[="a"]'


def test_default_keys_and_atomic_parts_of_a_pod() -> None:
    container = {"name": "main", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}
    pod = {"spec": {"containers": [container], "nodeSelector": {"a": "b"}}}
    assert fields_of(schema_of(POD), pod) == {
        "f:spec": {
            "f:containers": {
                'k:{"name":"main"}': {
                    ".": {},
                    "f:name": {},
                    "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                    "f:resources": {"f:limits": {"f:cpu": {}}},
                }
            },
            "f:nodeSelector": {},
        }
    }


def test_old_writers_are_put_together() -> None:
    owners, schema = ManagedFields(), schema_of(CONFIG_MAP)
    obj: dict[str, Any] = {"metadata": {}}
    for number in range(12):
        changed = {**obj, "data": {**obj.get("data", {}), f"k{number}": "v"}}
        writer = FieldManager(f"m{number:02}", "Update", "v1")
        owners, obj = owners.written(schema, obj, changed, writer, f"2026-01-02T03:04:{number:02}Z"), changed
    managers = [entry["manager"] for entry in owners.encoded()]
    assert len(managers) == 10
    assert managers[0] == "ancient-changes"


def test_pruning_removes_empty_parents() -> None:
    value = {"data": {"k": "1"}, "list": [{"name": "x", "value": "1"}]}
    last = {"f:data": {"f:k": {}}, "f:list": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:value": {}}}}
    assert pruned(SHAPE, value, last, {}) == {}
    assert pruned(SHAPE, value, last, {"f:data": {"f:k": {}}}) == {"data": {"k": "1"}}


@pytest.mark.parametrize(
    ("live", "config", "order"),
    [("", "ab", "ab"), ("a", "b", "ab"), ("abc", "ca", "bca"), ("abc", "b", "abc"), ("xa", "ya", "xya"), ("ab", "", "ab")],
)
def test_the_order_of_merged_elements(live: str, config: str, order: str) -> None:
    both = merged(SHAPE, *({"list": [{"name": name} for name in names]} for names in (live, config)))
    assert "".join(item["name"] for item in both["list"]) == order
