"""RFC 6902: its own examples, the mistakes, and that a failed patch changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.patching.json_patch import PatchFailed, apply_json_patch


def op(verb: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": verb, "path": path, **more}


@pytest.mark.parametrize(
    ("document", "operations", "wanted"),
    [
        ({"foo": "bar"}, [op("add", "/baz", value="qux")], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["bar", "baz"]}, [op("add", "/foo/1", value="qux")], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, [op("add", "/foo/-", value=["abc"])], {"foo": ["bar", ["abc"]]}),
        ({"foo": ["bar"]}, [op("add", "/foo/1", value="end")], {"foo": ["bar", "end"]}),
        ({"baz": "qux", "foo": "bar"}, [op("remove", "/baz")], {"foo": "bar"}),
        ({"foo": ["bar", "qux", "baz"]}, [op("remove", "/foo/1")], {"foo": ["bar", "baz"]}),
        ({"baz": "qux"}, [op("replace", "/baz", value="boo")], {"baz": "boo"}),
        ({"a": [1, 2]}, [op("replace", "/a/0", value=3)], {"a": [3, 2]}),
        ({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {}}, [op("move", "/qux/thud", **{"from": "/foo/waldo"})],
         {"foo": {"bar": "baz"}, "qux": {"thud": "fred"}}),
        ({"foo": ["all", "grass", "cows", "eat"]}, [op("move", "/foo/3", **{"from": "/foo/1"})],
         {"foo": ["all", "cows", "eat", "grass"]}),
        ({"a": {"x": 1}}, [op("copy", "/b", **{"from": "/a"}), op("replace", "/b/x", value=2)], {"a": {"x": 1}, "b": {"x": 2}}),
        ({"baz": "qux", "foo": ["a", 2, "c"]}, [op("test", "/baz", value="qux"), op("test", "/foo/1", value=2)],
         {"baz": "qux", "foo": ["a", 2, "c"]}),
        ({"/": 9, "~1": 10}, [op("test", "/~01", value=10), op("test", "/~1", value=9)], {"/": 9, "~1": 10}),
        ({"a": 1}, [op("add", "", value={"b": 2})], {"b": 2}),
        ({"a": 1}, [op("test", "/a", value=1.0)], {"a": 1}),
        # As the API server does:
        ({}, [op("replace", "/none", value=1)], {"none": 1}),
        ({"a": 1}, [op("add", "/a")], {"a": None}),
        ({}, [op("test", "/none", value=None)], {}),
    ],
)  # fmt: skip
def test_operations(document: Any, operations: Any, wanted: Any) -> None:
    assert apply_json_patch(document, operations) == wanted


@pytest.mark.parametrize(
    "operation",
    [
        op("test", "/a", value=2), op("test", "/flag", value=1), op("test", "/a", value="1"),
        op("remove", "/none"), op("remove", "/list/2"), op("remove", "/list/-"),
        op("add", "/none/deep", value=1), op("add", "/list/3", value=1), op("add", "/list/01", value=1),
        op("add", "/list/x", value=1),
        op("add", "/a/b", value=1), op("replace", "/list/2", value=1), op("copy", "/b"), op("copy", "/b", **{"from": "/none"}),
        op("move", "/map/in", **{"from": "/map"}), op("shove", "/a"), {"path": "/a"}, {"op": "add"}, "add", None,
    ],
)  # fmt: skip
def test_mistakes(operation: Any) -> None:
    document = {"a": 1, "flag": True, "list": [1, 2], "map": {}}
    with pytest.raises(PatchFailed):
        apply_json_patch(document, [op("add", "/new", value=1), operation])
    assert document == {"a": 1, "flag": True, "list": [1, 2], "map": {}}
