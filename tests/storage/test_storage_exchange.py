"""Two folders change places at once, or it is said that they cannot."""

import ctypes
import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from trainwright.initializers.prepare import swap_into_place
from trainwright.storage.atomic_file import exchange
from trainwright.workspace.receipt import Receipt


def folder(place: Path, content: str) -> Path:
    place.mkdir()
    (place / "file").write_text(content)
    return place


def prepared(place: Path, content: str) -> Path:
    folder(place, content)
    Receipt(kind="model", source=content, revision="", files=()).write(place)
    return place


def test_two_folders_change_places(tmp_path: Path) -> None:
    first, second = folder(tmp_path / "first", "1"), folder(tmp_path / "zweiter ü", "2")
    if not exchange(first, second):
        pytest.skip("this system cannot exchange two folders")
    assert ((first / "file").read_text(), (second / "file").read_text()) == ("2", "1")


def test_exchange_with_a_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        exchange(folder(tmp_path / "first", "1"), tmp_path / "nothing")


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_on_either_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    if not can_exchange:

        class Library:
            """The C library of a system, or of a file system, without it."""

            def __init__(self, *_: Any, **__: Any) -> None:
                pass

            def renameat2(self, *_: Any) -> int:
                ctypes.set_errno(errno.EINVAL)
                return -1

            renamex_np = renameat2

        monkeypatch.setattr(ctypes, "CDLL", Library)
    target = prepared(tmp_path / "target", "old")
    swap_into_place("model", prepared(tmp_path / "new", "new"), target)
    assert (target / "file").read_text() == "new"
    left = {path.name for path in tmp_path.iterdir()} - {"target"}
    assert left == ({"new"} if can_exchange else set()), "what was replaced is in the scratch folder, which is removed"


@pytest.mark.medium
def test_there_is_always_a_whole_folder(tmp_path: Path) -> None:
    target = prepared(tmp_path / "target", "0")
    if not exchange(target, folder(tmp_path / "other", "x")) or not exchange(target, tmp_path / "other"):
        pytest.skip("this system cannot exchange two folders")
    done = threading.Event()
    missing: list[str] = []

    def look() -> None:
        while not done.is_set():
            try:
                (target / "file").read_text()
            except FileNotFoundError as error:
                missing.append(str(error))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(50):
        new = prepared(tmp_path / f"new{number}", str(number))
        swap_into_place("model", new, target)
    done.set()
    reader.join()
    assert missing == []
