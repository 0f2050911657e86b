"""Kill -9 in the middle of writes, and a disk that is full: what was answered is there, the rest is whole or absent."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from hostile import Ask, InProcess
from support.rounds import IS_LONG
from writer import THREADS

from trainwright.api.kinds import CONFIG_MAP
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

KILLS = 1000 if IS_LONG else 50
WRITER = Path(__file__).with_name("writer.py")


class Expected:
    """What may be there, by the notes of the writers: for each name the last state that was answered, or the one under way."""

    def __init__(self, folder: Path) -> None:
        self.states: dict[str, set[str]] = {}
        self.revisions: list[list[int]] = []
        for thread in range(THREADS):
            self.revisions.append([])
            notes = folder / f"{thread}"
            for line in notes.read_text().splitlines() if notes.exists() else []:
                name, what, value = line.split()
                if what == "begin":
                    begun = value
                    self.states.setdefault(name, {"-"}).add(value)
                else:
                    self.states[name] = {begun}
                    self.revisions[-1].append(int(value))

    @property
    def highest(self) -> int:
        return max((revision for revisions in self.revisions for revision in revisions), default=0)


def killed_once(folder: Path, seed: int, seconds: float) -> int:
    """The revision at which the writer began."""
    process = subprocess.Popen([sys.executable, str(WRITER), str(folder), str(seed)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        began = int(process.stdout.readline())
        threading.Event().wait(seconds)  # a random moment is what is tested here
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return began


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_in_the_middle_of_writes(tmp_path: Path) -> None:
    dice = random.Random(11)
    highest = written = 0
    for number in range(KILLS):
        began = killed_once(tmp_path, number, dice.random() * 0.4)
        assert began >= highest, "a revision that was answered is given out again"
        expected = Expected(tmp_path)
        store = Store(tmp_path / "state.db")
        found = {record.object["metadata"]["name"]: record for record in store.list("things")[0]}
        try:
            for name, states in expected.states.items():
                record = found.pop(name, None)
                state = record.object["stamp"] if record else "-"
                assert state in states, f"kill {number}: {name} is {state}, not one of {states}"
                assert record is None or record.object["end"] == state
            assert not found
            assert store.revision > expected.highest
        finally:
            store.close()
        every = [revision for revisions in expected.revisions for revision in revisions]
        assert all(revisions == sorted(revisions) for revisions in expected.revisions)
        assert len(every) == len(set(every))
        highest, written = store.revision, len(every)
        # What is there now is what the next round begins with.
        for thread in range(THREADS):
            (tmp_path / f"{thread}").unlink(missing_ok=True)
        with open(tmp_path / "0", "w") as notes:
            for name in expected.states:
                kept = store.get("things", "", name)
                notes.write(f"{name} begin {kept.object['stamp'] if kept else '-'}\n{name} done {kept.revision if kept else 0}\n")
        _sorted_notes(tmp_path / "0")
    assert written


def _sorted_notes(path: Path) -> None:
    """The notes in the order of their revisions, as a writer would have made them."""
    lines = path.read_text().splitlines()
    pairs = sorted(zip(lines[::2], lines[1::2], strict=True), key=lambda pair: int(pair[1].split()[2]))
    path.write_text("".join(f"{begin}\n{done}\n" for begin, done in pairs if not done.endswith(" 0")))


@pytest.fixture
def full(tmp_path: Path) -> Iterator[tuple[InProcess, sqlite3.Connection]]:
    """A server whose database may not grow, by the word of sqlite."""
    store = Store(tmp_path / "state.db")
    peer = InProcess(ResourceServer(store))
    database = store._journal._db
    yield peer, database
    peer.close()
    store.close()


def test_a_full_disk_is_an_error_that_heals(full: tuple[InProcess, sqlite3.Connection], tmp_path: Path) -> None:
    peer, database = full
    maps = CONFIG_MAP.path("default")

    def create(number: int) -> int:
        obj = {"metadata": {"name": f"m{number}"}, "data": {"a": "x" * 50_000}}
        return peer.send(Ask("POST", maps, body=orjson.dumps(obj))).status

    assert create(0) == 201
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages + 40}")
    codes = [create(number) for number in range(1, 20)]
    stored = [number + 1 for number, code in enumerate(codes) if code == 201]
    assert codes[-1] == 507
    told = peer.send(Ask("POST", maps, body=orjson.dumps({"metadata": {"name": "z"}, "data": {"a": "x" * 90_000}})))
    assert told.status_object["kind"] == "Status"
    assert "free some space" in told.status_object["message"]
    listed = {item["metadata"]["name"] for item in peer.send(Ask("GET", maps)).status_object["items"]}
    assert listed == {f"m{number}" for number in [0, *stored]}
    database.execute("PRAGMA max_page_count = 1000000")
    before = peer.server.store.revision
    assert create(100) == 201
    assert peer.server.store.revision > before
    peer.server.store.close()
    again = Store(tmp_path / "state.db")
    assert {record.object["metadata"]["name"] for record in again.list("configmaps")[0]} == {*listed, "m100"}
    again.close()
