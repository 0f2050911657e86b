"""A page of the database that was written in part, or not at all, is noticed: a cluster never starts with half of its objects."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import orjson
import pytest

from trainwright.controlplane.apiserver.storage.journal import Change, Journal

OBJECTS = 40
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "state.db"
    journal, sizes = Journal(path), random.Random(1)
    for index in range(OBJECTS):
        data = orjson.dumps({"index": index, "text": "y" * sizes.randrange(100, 9000)})
        journal.append([Change(index + 1, "pods", "default", f"p{index}", data)])
    journal.close()
    return path.read_bytes()


def lost(_: bytes) -> bytes:
    return bytes(PAGE_BYTES)


def torn(page: bytes) -> bytes:
    return page[: PAGE_BYTES // 2] + bytes(PAGE_BYTES // 2)


def scrambled(page: bytes) -> bytes:
    return random.Random(page).randbytes(PAGE_BYTES)


@pytest.mark.medium
@pytest.mark.parametrize("damage", [lost, torn, scrambled])
def test_every_damaged_page_is_noticed(database: bytes, tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    noticed = 0
    for start in range(0, len(database), PAGE_BYTES):
        path = tmp_path / f"{start}.db"
        page = database[start : start + PAGE_BYTES]
        path.write_bytes(database[:start] + damage(page) + database[start + PAGE_BYTES :])
        try:
            journal = Journal(path)
        except sqlite3.Error:
            noticed += 1
            continue
        try:
            assert len(list(journal.objects())) == OBJECTS
        except sqlite3.Error:
            noticed += 1
        finally:
            journal.close()
    assert noticed >= len(database) // PAGE_BYTES * 0.9  # what is torn in unused space harms nobody


def test_a_whole_database_is_read(database: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(database)
    journal = Journal(path)
    assert sorted(name for _, _, name, _, _ in journal.objects()) == sorted(f"p{index}" for index in range(OBJECTS))
    journal.close()
