"""A URI has one spelling, round-trips through it, and says in one line what is wrong with a text that is none."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.uri import StorageUri

NAMES = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(NAMES, max_size=4))
def test_every_path_comes_back_from_its_uri(names: list[str]) -> None:
    path = Path("/", *names)
    uri = StorageUri.from_path(path)
    assert StorageUri.parse(str(uri)) == uri
    assert StorageUri.parse(str(uri)).path == path


def test_a_file_name_that_is_no_unicode_comes_back_too() -> None:
    path = Path(os.fsdecode(b"/data/\xff\xfe"))
    assert StorageUri.parse(str(StorageUri.from_path(path))).path == path


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("file:///data/set/", "file:///data/set"),
        ("file:///data//set/./x", "file:///data/set/x"),
        ("FILE://localhost/data", "file:///data"),
        ("  file:///data ", "file:///data"),
        ("file:///a%20b%2Fc", "file:///a%20b/c"),
        ("file:////data", "file:///data"),
        ("hf://org/name/", "hf://org/name"),
        ("hf://org/name@refs/pr/1", "hf://org/name@refs/pr/1"),
        ("hf://gpt2", "hf://gpt2"),
        ("S3://bucket//a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://my.bucket-1/a%20b/ü?x#y", "s3://my.bucket-1/a%20b/ü?x#y"),
    ],
)
def test_there_is_one_spelling(text: str, canonical: str) -> None:
    assert str(StorageUri.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "data/set",
        "/data/set",
        "gs://bucket/key",
        "s3://",
        "s3:///key",
        "s3://b",
        "s3://buck et/key",
        "s3://bucket/a/../b",
        "s3://bucket/a//b",
        "s3://bucket/./a",
        "s3://bucket/a\nb",
        "file://host/share",
        "file://data",
        "file:///data/../../etc/passwd",
        "file:///data/%2e%2e/etc",
        "file:///data%00",
        "hf://",
        "hf://a/b/c",
        "hf://../..",
        "hf://org/..",
        "hf://org/na me",
    ],
)
def test_anything_else_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(BadUri) as caught:
        StorageUri.parse(text)
    assert repr(text) in str(caught.value)


def test_only_a_file_uri_has_a_path() -> None:
    with pytest.raises(StorageError, match="hf://org/name is not a local path"):
        _ = StorageUri.parse("hf://org/name").path


@given(st.lists(NAMES.filter(lambda name: name.isprintable() and name == name.strip()), max_size=4))
def test_every_key_comes_back_from_its_uri(names: list[str]) -> None:
    uri = StorageUri.parse("s3://bucket")
    for name in names:
        uri = uri.join(name)
    assert StorageUri.parse(str(uri)) == uri
    assert (uri.bucket, uri.key) == ("bucket", "/".join(names))


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:canary@bucket/x",
        "s3://key:canary@bu",
        "https://user:canary@host/x",
        "https://host/x?X-Amz-Signature=canary",
        "file://user:canary@host/x",
        "hf://user:canary@org/name/more",
    ],
)
def test_a_password_is_not_repeated(text: str) -> None:
    with pytest.raises(BadUri) as refused:
        StorageUri.parse(text)
    assert "canary" not in str(refused.value)
