"""The reader of YAML: values as kubectl reads them, one error with line and column for the rest, and bounded work."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.shared_folder import shared_folder

from trainwright.api.documents import load_documents
from trainwright.api.errors import BadRequest
from trainwright.cli.validate import source_maps
from trainwright.text.text_input import MAX_BYTES, Unreadable
from trainwright.text.yaml_reader import read_yaml
from trainwright.text.yaml_writer import to_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("# only a comment\n", []),
        ("---\n---\n", [None, None]),
        ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("\ufeffa: 1", [{"a": 1}]),
        ("a: 2026-11-20T10:00:00Z", [{"a": "2026-11-20T10:00:00Z"}]),
        ("a: 1:30", [{"a": "1:30"}]),
        ("[0o17, 017, 0x1F, 0b11, 1_000, -1, +1, 0b]", [["0o17", 15, 31, 3, 1000, -1, 1, "0b"]]),
        ("[1.5, -.5, 1e5, yes, Off, ~, null, =, <<]", [[1.5, -0.5, "1e5", True, False, None, None, "=", "<<"]]),
        ("['1', \"yes\", ! 12, !!str 12, !!int '3', !!float 3]", [["1", "yes", "12", "12", 3, 3.0]]),
        ("{1: a, 1.5: b, yes: c, 2026-11-20: d}", [{"1": "a", "1.5": "b", "true": "c", "2026-11-20": "d"}]),
        ("a: &a {x: 1}\nb: *a\n", [{"a": {"x": 1}, "b": {"x": 1}}]),
        ("a: &a {x: 1, y: 1}\nb: {y: 2, <<: *a}\n", [{"a": {"x": 1, "y": 1}, "b": {"x": 1, "y": 2}}]),
        ("a: &a {x: 1}\nb: {<<: [*a, {x: 2, z: 3}]}\n", [{"a": {"x": 1}, "b": {"x": 1, "z": 3}}]),
    ],
)
def test_values_are_those_of_kubectl(text: str, values: list[Any]) -> None:
    assert read_yaml(text) == values == read_yaml(text.encode())


def test_an_alias_is_a_copy() -> None:
    ((value),) = read_yaml("a: &a {x: [1]}\nb: *a\n")
    value["a"]["x"].append(2)
    assert value["b"] == {"x": [1]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1: duplicate key 'a'"),
        ("a:\n  - {b: 1, b: 2}\n", "f.yaml:2:12: duplicate key 'b'"),
        ('1: a\n"1": b\n', "f.yaml:2:1: duplicate key '1'"),
        ("a: .nan", "f.yaml:1:4: a number that JSON does not support: .nan"),
        ("a: -.INF", "f.yaml:1:4: a number that JSON does not support: -.INF"),
        ("a: 1.0e+999", "f.yaml:1:4: a number that JSON does not support: too large"),
        (f"a: {'9' * 5000}", "f.yaml:1:4: an integer above 64 bits that JSON does not support"),
        (f"a: 0x1{'0' * 16}", "f.yaml:1:4: an integer above 64 bits"),
        ("? [a]\n: b", "f.yaml:1:3: a key is an object or a list"),
        ("~: 1", "f.yaml:1:1: a key is null"),
        ("a: !!binary aGk=", "f.yaml:1:4: a value of the type '!!binary' that JSON does not support"),
        ("a: !!python/object:os.system x", "f.yaml:1:4: a value of the type '!!python/object:os.system'"),
        ("!!set {a}", "f.yaml:1:1: a value of the type '!!set'"),
        ("a: *a", "f.yaml:1:4: the alias 'a' refers to no earlier anchor"),
        ("&a [*a]", "f.yaml:1:5: the alias 'a' refers to no earlier anchor"),
        ("a: {<<: 1}", "f.yaml:1:9: << expects an object"),
        ("a: [", "f.yaml:2:1: not YAML: "),
        ("a: \x00", "f.yaml:1:4: contains the character U+0000"),
        ("a: 1\nb: \x1b[0m", "f.yaml:2:4: contains the character U+001B"),
        ("a: \ud800", "f.yaml:1:4: contains the character U+D800"),
        (b"a: \xff", "f.yaml: not UTF-8 text (byte 3)"),
        (b"\xff\xfea\x00", "f.yaml: not UTF-8 text (byte 0)"),
        (" " * (MAX_BYTES + 1), "f.yaml: larger than 16 MiB"),
    ],
)
def test_errors_name_file_line_and_column(text: str | bytes, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        load_documents(text, "f.yaml")
    assert caught.value.message.startswith(said)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "more than 120 levels deep"),
        ("- " * 100_000, "more than 120 levels deep"),
        ("{a: " * 100_000, "more than 120 levels deep"),
        ("? " * 100_000, "a key is"),
        ("".join(" " * depth + "a:\n" for depth in range(500)), "more than 120 levels deep"),
        (BOMB, "aliases repeat more than 3 MiB"),
        ("a: &a [" + "[" * 100 + "]" * 101 + "\nb: " + "[" * 100 + "*a" + "]" * 100, "more than 120 levels deep"),
        (f"a: &a {'x' * 1_000_000}\nb: [*a, *a, *a, *a]", "aliases repeat more than 3 MiB"),
        ("&a " * 100_000, "not YAML"),
        ("!!str " * 100_000, "not YAML"),
        ("'" * 100_001, "not YAML"),
        ("9" * 1_000_000, "above 64 bits"),
        ("-" + "_" * 1_000_000, ""),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_hostile_texts_end_soon(text: str, said: str) -> None:
    begun = time.process_time()
    try:
        read_yaml(text)
    except Unreadable as error:
        assert said in error.message  # noqa: PT017
    else:
        assert not said
    assert time.process_time() - begun < 2


def test_lines_of_fields_count_merged_ones_and_items_of_lists() -> None:
    text = "base: &b\n  x: 1\nkind: X\nspec:\n  <<: *b\n  y:\n  - 1\n  - z: 2\n---\nkind: List\nitems:\n- kind: A\n- kind: B\n"
    first, *items = source_maps(text)
    lines = {"spec.x": 2, "spec.y": 6, "spec.y[1].z": 8, "spec.y[1].z.none": 8, "none": 1}
    assert {path: first.line(path) for path in lines} == lines
    assert [item.line("kind") for item in items] == [12, 13]
    assert source_maps("a: [") == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.medium
@given(JSON_VALUES)
def test_property_what_is_written_is_read(value: Any) -> None:
    text = to_yaml(value)
    try:
        (read,) = read_yaml(text)
    except Unreadable as error:
        assert "U+" in error.message  # noqa: PT017  a character that YAML cannot hold
    else:
        assert read == value or (isinstance(value, float) and math.isclose(read, value))


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%?,~0.1\n\t <\\", max_size=60))
def test_property_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = read_yaml(text)
    except Unreadable:
        return
    try:
        expected = list(yaml.load_all(text, yaml.BaseLoader))
    except yaml.YAMLError:  # such as a key that is a list
        return
    assert len(values) == len(expected)


def test_upstreams_manifests_are_read_as_pyyaml_reads_them() -> None:
    files = sorted(shared_folder("upstream").rglob("*.yaml"), key=lambda file: file.stat().st_size)[:40]
    assert files
    for file in files:
        text = file.read_bytes()
        expected = list(yaml.load_all(text, yaml.CSafeLoader))
        assert read_yaml(text, file.name) == expected, file
