"""A safetensors file that is cut off anywhere is never called whole, and no header whatever raises."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.checkpoints.formats.whole_files import safetensors_error

WHATEVER = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("data_offsets"), inner, max_size=3),
    max_leaves=8,
)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def safetensors(sizes: list[int], pad: int = 0) -> bytes:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for number, size in enumerate(sizes):
        header[f"layer.{number}"] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}  # type: ignore[dict-item]
        end += size
    text = json.dumps(header).encode() + b" " * pad
    return len(text).to_bytes(8, "little") + text + b"\1" * end


@same_folder
@given(st.lists(st.integers(0, 40), max_size=5), st.integers(0, 7), st.data())
def test_a_file_is_whole_at_its_full_length_and_at_no_other(
    tmp_path: Path, sizes: list[int], pad: int, data: st.DataObject
) -> None:
    content = safetensors(sizes, pad)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert safetensors_error(path) is None
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert safetensors_error(path)
    path.write_bytes(content + b"\0")
    assert safetensors_error(path)


def test_every_single_place_to_cut_is_noticed(tmp_path: Path) -> None:
    content, path = safetensors([8, 16]), tmp_path / "model.safetensors"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert safetensors_error(path), length


@pytest.mark.medium
@same_folder
@given(WHATEVER)
def test_no_header_raises(tmp_path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    damage = safetensors_error(path)
    assert damage is None or isinstance(damage, str)


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        (b"", "its header is truncated"),
        (b"\0" * 8, "its header cannot be read"),
        (b"\xff" * 16, "its header is truncated"),
        (b"\2" + b"\0" * 7 + b"[]", "its header has no data offsets"),
        (b"\2" + b"\0" * 7 + b"\xff\xff", "its header cannot be read"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "its header cannot be read"),
    ],
)
def test_damaged_headers_are_reported(tmp_path: Path, content: bytes, damage: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert (safetensors_error(path) or "").startswith(damage)


def test_a_missing_file_and_a_folder_are_damaged(tmp_path: Path) -> None:
    assert safetensors_error(tmp_path / "missing") == "it is missing"
    assert safetensors_error(tmp_path)
