"""The files of a volume change all at once: a reader never sees a part of the new and a part of the old."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.volumes import VolumeError
from trainwright.controlplane.node.volumes.files import VolumeFile, write_files


def files(**contents: bytes) -> dict[str, VolumeFile]:
    return {name.replace("__", "/"): VolumeFile(content, 0o644) for name, content in contents.items()}


def visible(root: Path) -> dict[str, bytes]:
    """What a container sees: names without the leading dots, through their links."""
    found = {}
    for place, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith("..")]
        found |= {str(Path(place, name).relative_to(root)): Path(place, name).read_bytes() for name in names}
    return found


NAMES = st.sampled_from(["a", "b", "c/x", "c/y", "d/e/f", "g"])


@pytest.mark.medium
@given(contents=st.lists(st.dictionaries(NAMES, st.binary(max_size=3), max_size=5), min_size=1, max_size=4))
def test_property_what_was_written_last_is_what_is_there(
    contents: list[dict[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("volume")
    before: dict[str, bytes] | None = None
    for content in contents:
        changed = write_files(root, {path: VolumeFile(data, 0o644) for path, data in content.items()})
        assert changed == (content != before)
        assert visible(root) == content
        assert len([name for name in os.listdir(root) if name.startswith("..")]) == 2, "the link and one folder"
        before = content


@pytest.mark.medium
def test_a_reader_sees_one_version_only(tmp_path: Path) -> None:
    write_files(tmp_path, files(a=b"0", b=b"0", deep__c=b"0"))
    ended = threading.Event()
    seen: set[bytes] = set()
    torn: list[list[bytes]] = []

    def read() -> None:
        while not ended.is_set():
            try:
                folder = os.open(tmp_path / "..data", os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:  # the version was removed after the link was read
                if not os.path.lexists(tmp_path / "..data"):
                    torn.append([b"no ..data"])
                continue
            try:
                read = []
                for name in ("a", "b", "deep/c"):
                    with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
                        read.append(file.read())
            except FileNotFoundError:  # this version was removed while it was read, as a kubelet does
                continue
            finally:
                os.close(folder)
            seen.add(read[0])
            if len(set(read)) != 1:
                torn.append(read)

    reader = threading.Thread(target=read)
    reader.start()
    version = 0
    while version < 50 or (len(seen) < 5 and version < 100_000):
        version += 1
        write_files(tmp_path, files(a=b"%d" % version, b=b"%d" % version, deep__c=b"%d" % version))
    ended.set()
    reader.join()
    assert not torn
    assert len(seen) >= 5, "the reader ran beside the writer"


def test_leftovers_of_an_interrupted_or_older_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / "..2020_01_01_00_00_00.abc").mkdir()
    (tmp_path / "..data_tmp").symlink_to("nowhere")
    (tmp_path / "a").write_text("a plain file")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/x").write_text("x")
    write_files(tmp_path, files(a=b"new", c__y=b"y"))
    assert visible(tmp_path) == {"a": b"new", "c/y": b"y"}
    (tmp_path / "..2020_01_01_00_00_00.def").mkdir()
    assert not write_files(tmp_path, files(a=b"new", c__y=b"y"))
    assert len([name for name in os.listdir(tmp_path) if name.startswith("..")]) == 2


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "..", "..x", "", ".", "a/..", "./..", "x" * 5000])
def test_paths_outside_of_the_volume(path: str, tmp_path: Path) -> None:
    with pytest.raises(VolumeError):
        write_files(tmp_path, {path: VolumeFile(b"", 0o644)})
    assert os.listdir(tmp_path) == []


def test_links_in_a_volume_are_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    root = tmp_path / "volume"
    root.mkdir()
    (root / "a").symlink_to(outside)
    (root / "stale").symlink_to(outside)
    write_files(root, files(a__b=b"1"))
    assert visible(root) == {"a/b": b"1"}
    assert os.listdir(outside) == ["kept"]
