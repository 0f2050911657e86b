"""Only regular files inside the folder are read, whatever stands there and whatever it is replaced with meanwhile."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import files_below, folder_files, open_plain, read_plain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    (place / "sub").mkdir(parents=True)
    (place / "file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"secret")
    return place


def test_links_inside_count_as_their_files_and_others_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    (folder / "inside").symlink_to("file")
    (folder / "sub" / "up").symlink_to("../file")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "environment").symlink_to("/proc/self/environ")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "through").symlink_to("out")
    (folder / "dangling").symlink_to("nothing")
    (folder / "circle").symlink_to("circle")
    (folder / "linked-folder").symlink_to("sub")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
    found = folder_files(folder)
    assert [path.as_posix() for path in found.files] == ["file", "inside", "sub/up"]
    assert {path.as_posix(): reason.split(" /")[0] for path, reason in found.refused.items()} == {
        "circle": "a link to a file that does not exist"
        if found.refused[Path("circle")].endswith("exist")
        else "a link that leads nowhere",
        "dangling": "a link to a file that does not exist",
        "environment": "a link to",
        "linked-folder": "a link to a folder",
        "out": "a link to",
        "pipe": "a named pipe",
        "socket": "a socket",
        "through": "a link to",
        "zero": "a link to",
    }
    with pytest.raises(UnsafeFile, match=r"circle is a link .*; 4 more; remove them"):
        found.require_none_refused(folder)


def test_a_snapshot_of_the_hubs_cache_consists_of_links_to_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "digest").write_bytes(b"weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/digest")
    (snapshot / "config.json").symlink_to("/proc/self/environ")
    found = folder_files(snapshot)
    assert found.files == (Path("model.safetensors"),)
    assert set(found.refused) == {Path("config.json")}
    assert read_plain(snapshot / "model.safetensors", 100, snapshot) == b"weights"


@pytest.mark.parametrize("within", [True, False])
def test_a_pipe_is_refused_without_waiting_for_a_writer(folder: Path, within: bool) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(UnsafeFile, match="pipe is a named pipe, not a regular file"):
        open_plain(folder / "pipe", folder if within else None)


def test_an_endless_device_and_a_file_above_the_limit_are_not_read(folder: Path) -> None:
    (folder / "zero").symlink_to("/dev/zero")
    with pytest.raises(UnsafeFile, match="zero is a device"):
        read_plain(folder / "zero", 100)
    with pytest.raises(UnsafeFile, match="file is larger than 5 bytes"):
        read_plain(folder / "file", 5)
    assert read_plain(folder / "file", 6, folder) == b"inside"


def test_a_file_that_becomes_a_link_after_it_was_checked_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "link").symlink_to("file")
    real = os.path.realpath

    def swapped(path: Any, **options: Any) -> str:
        resolved = real(path, **options)
        if str(path).endswith("/link"):
            (folder / "file").unlink()
            (folder / "file").symlink_to(tmp_path / "secret")
        return resolved

    monkeypatch.setattr(os.path, "realpath", swapped)
    with pytest.raises(UnsafeFile, match="has just been replaced by a link"):
        open_plain(folder / "link", folder)


def test_a_folder_that_becomes_a_link_after_it_was_checked_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub" / "secret").write_bytes(b"harmless")
    (folder / "link").symlink_to("sub/secret")
    real = os.path.realpath

    def swapped(path: Any, **options: Any) -> str:
        resolved = real(path, **options)
        if str(path).endswith("/link"):
            (folder / "sub").rename(tmp_path / "moved")
            (folder / "sub").symlink_to(tmp_path)
        return resolved

    monkeypatch.setattr(os.path, "realpath", swapped)
    with pytest.raises((UnsafeFile, OSError)):
        open_plain(folder / "link", folder)


KINDS = st.sampled_from(["file", "folder", "pipe", "inside", "outside", "environ", "dangling", "circle", "folder-link"])


@pytest.mark.medium
@given(entries=st.dictionaries(st.sampled_from(["a", "b", "c.json", "d/e", "d/f", "ü"]), KINDS, max_size=6))
def test_property_nothing_from_outside_is_ever_read(tmp_path_factory: pytest.TempPathFactory, entries: dict[str, str]) -> None:
    base = tmp_path_factory.mktemp("tree")
    secret, folder = base / "secret", base / "folder"
    secret.write_bytes(b"secret")
    folder.mkdir()
    (folder / "real").write_bytes(b"inside")
    for name, kind in entries.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        targets = {
            "inside": folder / "real",
            "outside": secret,
            "environ": Path("/proc/self/environ"),
            "dangling": base / "nothing",
            "circle": path,
            "folder-link": base,
        }
        if kind == "file":
            path.write_bytes(b"inside")
        elif kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(targets[kind])
    found = folder_files(folder)
    assert {path.as_posix() for path in found.files} == {
        "real",
        *(n for n, kind in entries.items() if kind in ("file", "inside")),
    }
    assert {path.as_posix() for path in found.refused} == {
        n for n, kind in entries.items() if kind not in ("file", "inside", "folder")
    }
    assert all(read_plain(folder / path, 100, folder) == b"inside" for path in files_below(folder))
    for path in found.refused:
        with pytest.raises((UnsafeFile, OSError)):
            read_plain(folder / path, 100, folder)
