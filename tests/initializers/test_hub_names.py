"""What a user may write for a source, besides a URI."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.initializers import initialize_dataset
from trainwright.storage.uri import StorageUri
from trainwright.text.hub_names import is_bare_name, with_scheme


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("org/name", "hf://org/name"),
        ("/data/x", "file:///data/x"),
        ("/data/a b#?%.csv", "file:///data/a%20b%23%3F%25.csv"),
        ("hf://org/name", "hf://org/name"),
        ("data/x/y", "data/x/y"),
        ("name", "name"),
        ("./data/x", "./data/x"),
        ("", ""),
    ],
)
def test_short_forms_become_uris_and_the_rest_stays(text: str, uri: str) -> None:
    assert with_scheme(text) == uri
    assert is_bare_name(text) == (text == "org/name")


@given(st.lists(st.binary(min_size=1, max_size=8).filter(lambda name: not set(name) & {0, 47}), min_size=1, max_size=4))
def test_every_absolute_path_is_that_of_its_uri(names: list[bytes]) -> None:
    path = os.path.normpath("/" + "/".join(os.fsdecode(name) for name in names if name not in (b".", b"..")))
    assert StorageUri.parse(with_scheme(path)).path == Path(path)


def test_a_path_is_prepared_like_its_uri(tmp_path: Path, lines: bytes) -> None:
    source = tmp_path / "rows of #1.jsonl"
    source.write_bytes(lines)
    by_path = initialize_dataset(str(source), tmp_path / "a")
    by_uri = initialize_dataset(str(StorageUri.from_path(source)), tmp_path / "b")
    assert by_path.digest == by_uri.digest
