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


@pytest.mark.medium
@given(st.lists(NAMES, max_size=4))
def test_every_path_comes_back_from_its_uri(names: list[str]) -> None:
    path = Path("/", *names)
    uri = StorageUri.from_path(path)
    assert StorageUri.parse(str(uri)) == uri
    assert StorageUri.parse(str(uri)).path == path


def test_parent_folders_of_a_path_are_those_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    assert StorageUri.from_path(Path("../../data")).path == tmp_path / "data"
    assert StorageUri.from_path(tmp_path / "link" / "..").path == tmp_path / "a"
    assert StorageUri.from_path(tmp_path / "link").path == tmp_path / "link"


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
        ("hf://gpt2@main/sub", "hf://gpt2@main/sub"),
        ("hf://org/name/sub/folder/", "hf://org/name/sub/folder"),
        ("hf://datasets/org/x", "hf://datasets/org/x"),
        ("hf://models/org/x@v1/sub", "hf://models/org/x@v1/sub"),
        ("hf://datasets/squad", "hf://datasets/squad"),
        ("hf://datasets/org/x@refs/convert/parquet/default", "hf://datasets/org/x@refs/convert/parquet/default"),
        ("hf://org/x@feature%2Fy/sub #%?ü", "hf://org/x@feature%2Fy/sub #%?ü"),
        ("HTTPS://Example.COM/a b/ü.jsonl", "https://example.com/a%20b/%C3%BC.jsonl"),
        ("https://example.com:8443/a%20b.csv?X-Amz-Signature=s", "https://example.com:8443/a%20b.csv"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("https://h/x#sha256=" + "A" * 64, "https://h/x#sha256=" + "a" * 64),
        ("S3://bucket//a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("pvc://c/a b/", "pvc://c/a b"),
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
        "ftp://bucket/key",
        "s3://",
        "s3:///key",
        "s3://b",
        "s3://buck et/key",
        "s3://bucket/a/../b",
        "pvc://Claim/a",
        "pvc://claim-/a",
        "pvc://claim/../a",
        "s3://bucket/a//b",
        "s3://bucket/./a",
        "s3://bucket/a\nb",
        "file://host/share",
        "file://data",
        "file:///data/../../etc/passwd",
        "file:///data/%2e%2e/etc",
        "file:///data%00",
        "hf://",
        "hf://a/b/../c",
        "hf://a/b//c",
        "hf://a/b@/c",
        "https://",
        "https://host",
        "https://host/folder/",
        "https://host/..",
        "https://host:port/x",
        "https://host/x#sha256=abc",
        "https://host/x#md5=abc",
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


@pytest.mark.medium
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
        "https://host/folder/?X-Amz-Signature=canary",
        "file://user:canary@host/x",
        "hf://user:canary@org/name/more",
    ],
)
def test_a_password_is_not_repeated(text: str) -> None:
    with pytest.raises(BadUri) as refused:
        StorageUri.parse(text)
    assert "canary" not in str(refused.value)


def test_the_parts_of_a_repository_are_told_apart() -> None:
    uri = StorageUri.parse("hf://datasets/org/x@refs/convert/parquet/default/train")
    assert (uri.kind, uri.location, uri.revision, uri.folder) == ("dataset", "org/x", "refs/convert/parquet", "default/train")
    assert StorageUri.parse("hf://org/x@feature%2Fy/sub").revision == "feature/y"
    padded = StorageUri("hf", "org/x", "y ", kind="model", folder="")
    assert StorageUri.parse(str(padded)) == padded


@pytest.mark.medium
@given(
    NAMES.filter(str.isprintable), st.lists(NAMES.filter(lambda name: name.isprintable() and name == name.strip()), max_size=3)
)
def test_every_revision_and_path_come_back_from_their_uri(revision: str, path: list[str]) -> None:
    uri = StorageUri("hf", "org/name", f"x/{revision}", kind="model", folder="/".join(path))
    assert StorageUri.parse(str(uri)) == uri


def test_a_query_is_requested_and_never_shown() -> None:
    uri = StorageUri.parse("https://host/x.csv?X-Amz-Signature=canary")
    assert uri.request_url == "https://host/x.csv?X-Amz-Signature=canary"
    assert "canary" not in f"{uri} {uri!r}"
