"""Pickles of others are read without executing, hashing or allocating what they say."""

from __future__ import annotations

import os
import pickle
import time
import tracemalloc
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import pytest
from format_files import dcp_metadata
from hypothesis import example, given
from hypothesis import strategies as st

from trainwright.checkpoints.formats import dcp as reading
from trainwright.checkpoints.formats.dcp import read_dcp_metadata
from trainwright.checkpoints.formats.inert_pickle import MEMORY_FACTOR, BadPickle, Pairs, Record, read_pickle

pytestmark = pytest.mark.medium


def values(leaves: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Leaves, and lists, dicts and tuples of them."""
    return st.recursive(
        leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner), max_leaves=20
    )


TEXTS = st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text()
PLAIN = values(TEXTS | st.binary())


def plain(value: object) -> object:
    """What was read, with dicts as Python has them."""
    match value:
        case Pairs():
            return {key: plain(inner) for key, inner in value.items}
        case list():
            return [plain(inner) for inner in value]
        case tuple():
            return tuple(plain(inner) for inner in value)
    return value


def read(content: bytes) -> object:
    return read_pickle(content, lambda name: name in ("collections.OrderedDict", "builtins.bytearray"))


@given(st.tuples(PLAIN, st.integers(3, 5)) | st.tuples(values(TEXTS), st.just(2)))
def test_property_plain_values_are_read_as_they_were_written(case: tuple[object, int]) -> None:
    """Protocol 2, of torch.save, has no bytes of its own."""
    value, protocol = case
    assert plain(read(pickle.dumps(value, protocol=protocol))) == value


@given(PLAIN, st.data())
def test_property_a_truncated_pickle_is_an_error(value: object, data: st.DataObject) -> None:
    content = pickle.dumps(value)
    with pytest.raises(BadPickle):
        read(content[: data.draw(st.integers(0, len(content) - 1))])


@given(st.binary(max_size=400))
@example(b"\x80\x04(K\x01K\x02K\x03d.")
@example(b"(\x85.")
@example(b"\x80\x04\x8c\x01a\x8c\x01b\x93.")
def test_property_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        read(b"\x80\x04" + content)
    except BadPickle:
        return


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("made-by-a-pickle",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(Harmful(), protocol=protocol)
    with pytest.raises(BadPickle, match=r"refers to 'posix\.mkdir', which is not allowed"):
        read(content)
    found = read_pickle(content, lambda _name: True)
    assert isinstance(found, Record)
    assert (found.name, found.args) == ("posix.mkdir", ("made-by-a-pickle",))
    assert list(tmp_path.iterdir()) == []


def test_items_of_an_ordered_dict_are_kept() -> None:
    found = read(pickle.dumps(OrderedDict(a=1, b=[2])))
    assert isinstance(found, Record)
    assert isinstance(found.state, Pairs)
    assert (found.state.get("a"), found.state.get("b"), found.state.get("c")) == (1, [2], None)


def test_keys_are_not_hashed() -> None:
    """A tuple of tuples that refer to the one before twice takes 2**64 steps to hash."""
    doubled = b"K\x01" + b"".join(b"2\x86" for _ in range(64))
    began = time.process_time()
    assert isinstance(read(b"\x80\x04}" + doubled + b"Ns."), Pairs)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"r\xff\xff\xff\xff.", "corrupt"),
        (b"\x8b\xff\xff\xff\x7f.", "too large"),
        (b"\x8e" + b"\xff" * 8 + b".", "truncated"),
        (b"(" * 200 + b".", "more than 100 operations"),
        (b"I1\n.", "that torch does not write"),
        (b"}(Nu.", "corrupt"),
        (b"c" + b"a" * 1000, "truncated"),
    ],
)
def test_expensive_pickles_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(BadPickle, match=reason):
        read_pickle(b"\x80\x04" + content, lambda _name: True, max_operations=100)


@pytest.mark.parametrize(
    "repeated",
    [b"}", b"]", b"N\x85", b"2\x86", b"(l", b"(t", b"N\x94", b"J\xff\xff\xff\x7f", b"\x8c\x02ab", b"\x8c\x02\xc4\x80", b"NNs",
     b"h\0)\x81", b"\x8c\x02ab\x94}\x94", b"(NNNNNNt", b"Nr\xff\xff\xff\x7f", b"}N\x8c\x02abN"],
)  # fmt: skip
def test_memory_is_linear_in_the_size(repeated: bytes) -> None:
    content = b"\x80\x04c\n\n\x940}" + repeated * (200_000 // len(repeated)) + b"."
    tracemalloc.start()
    try:
        with suppress(BadPickle):
            read(content)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_FACTOR * len(content)
    finally:
        tracemalloc.stop()


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def shared_entries(entries: int, others: int) -> bytes:
    """A `.metadata` whose storage entries all have one dict of attributes, with so many others after those that are read."""
    torch = "torch.distributed.checkpoint"
    attributes = text("relative_path") + text("a") + text("offset") + b"K\0" + text("length") + b"K\x05"
    attributes = b"}(" + attributes + b"".join(text(f"o{number}") + b"N" for number in range(others)) + b"u"
    entry = f"c{torch}.filesystem\n_StorageInfo\n".encode() + b")\x81"
    found = b"N" + entry + attributes + b"r\0\0\0\0b" + (b"N" + entry + b"j\0\0\0\0b") * (entries - 1)
    whole = text("state_dict_metadata") + b"}" + text("storage_data") + b"}(" + found + b"u"
    return b"\x80\x04" + f"c{torch}.metadata\nMetadata\n".encode() + b")\x81}(" + whole + b"ub."


def test_time_is_linear_in_the_size_of_a_metadata_whose_entries_are_one(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(shared_entries(20_000, 20_000))
    began = time.process_time()
    assert read_dcp_metadata(tmp_path / ".metadata", tmp_path).sizes == {"a": 5}
    assert time.process_time() - began < 5


def test_a_memo_index_takes_no_memory() -> None:
    assert read(b"\x80\x04Nr\xff\xff\xff\xff.") is None


class TestMetadata:
    def test_the_least_size_of_each_file_and_the_keys_are_read(self, tmp_path: Path) -> None:
        (tmp_path / ".metadata").write_bytes(
            dcp_metadata([("__0_0.distcp", 0, 5), ("__0_0.distcp", 5, 7), ("__1_0.distcp", 2, 1)])
        )
        found = read_dcp_metadata(tmp_path / ".metadata", tmp_path)
        assert (found.sizes, found.keys) == ({"__0_0.distcp": 12, "__1_0.distcp": 3}, ("model.weight",))

    @pytest.mark.parametrize("name", ["../other", "/etc/passwd", "a/b", "", ".."])
    def test_a_file_elsewhere_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / ".metadata").write_bytes(dcp_metadata([(name, 0, 5)]))
        with pytest.raises(BadPickle, match="not in the folder"):
            read_dcp_metadata(tmp_path / ".metadata", tmp_path)

    @pytest.mark.parametrize(
        ("value", "reason"),
        [(Harmful(), "posix.mkdir"), ({"storage_data": {}}, "not the metadata"), (Path("a"), "not the metadata")],
    )
    def test_another_pickle_is_refused(self, tmp_path: Path, value: object, reason: str) -> None:
        (tmp_path / ".metadata").write_bytes(pickle.dumps(value))
        with pytest.raises(BadPickle, match=reason):
            read_dcp_metadata(tmp_path / ".metadata", tmp_path)

    @pytest.mark.parametrize("entry", [("a", -1, 5), ("a", 0, -5), ("a", "0", 5)])
    def test_entries_without_an_extent_are_refused(self, tmp_path: Path, entry: tuple[str, int, int]) -> None:
        (tmp_path / ".metadata").write_bytes(dcp_metadata([entry]))
        with pytest.raises(BadPickle, match="without file, offset and length"):
            read_dcp_metadata(tmp_path / ".metadata", tmp_path)

    def test_a_changed_file_is_read_again(self, tmp_path: Path) -> None:
        for number in range(5):
            (tmp_path / ".metadata").write_bytes(dcp_metadata([(f"file-{number}", 0, 5)] * (number + 1)))
            for _ in range(2):
                assert list(read_dcp_metadata(tmp_path / ".metadata", tmp_path, kept=2).sizes) == [f"file-{number}"]
        assert len(reading._read) <= 2
