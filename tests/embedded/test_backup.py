"""Copies of a cluster's state: whole, private, verified, and a way back that never gives a version out twice."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainwright.cli.app import app
from trainwright.controlplane.apiserver.storage.journal import RESTART_GAP, UnknownSchema
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.embedded.backup import BackupFailed, back_up, restore
from trainwright.embedded.home import Home, HomeLocked


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    store = Store(home.database)
    for number in range(50):
        store.put("things", "", f"t{number}", thing(number))
    yield store
    store.close()


def thing(number: int) -> dict[str, object]:
    return {"metadata": {"name": f"t{number}"}, "value": number}


@pytest.mark.medium
@pytest.mark.parametrize("limit", [4096, 40_000, 150_000])
def test_a_disk_that_is_full_gets_one_line_and_nothing_is_left(home: Home, tmp_path: Path, limit: int) -> None:
    """The largest size of a file stands for the disk."""
    store = Store(home.database)
    for number in range(50):
        store.put("things", "", f"t{number}", {**thing(number), "text": os.urandom(5000).hex()})
    store.close()
    folder = tmp_path / "backups"
    folder.mkdir()
    command = [sys.executable, "-m", "trainwright.cli", "backup", str(folder / "copy.db"), "--home", str(home.path)]
    done = subprocess.run(
        ["bash", "-c", f'ulimit -f {limit // 1024}; exec "$@"', "bash", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"state.db cannot be copied to {folder}: " in done.stderr
    assert "is there enough space?" in done.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.medium
def test_a_running_cluster_is_copied_whole(home: Home, store: Store, tmp_path: Path) -> None:
    """While somebody writes: every copy is the state at one moment."""
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            store.put("pair", "", "a", thing(number))
            store.put("pair", "", "b", thing(number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            target = tmp_path / f"copy-{number}"
            contents = back_up(home, target)
            copy = Store(shutil.copy(target, tmp_path / f"opened-{number}"))
            assert contents.objects == sum(copy.sizes().values())
            pair = [copy.get("pair", "", name) for name in "ab"]
            assert len(copy.list("things")[0]) == 50
            if all(pair):
                assert pair[0].object["value"] - pair[1].object["value"] in (0, 1)  # type: ignore[union-attr]
            copy.close()
            assert stat.S_IMODE(target.stat().st_mode) == 0o600
    finally:
        stop.set()
        writer.join()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_state_comes_back_and_versions_go_on(home: Home, store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    contents = back_up(home, target)
    for number in range(5000):
        if number % 1000 == 0:
            later = store.put("things", "", "t0", thing(-1))
    store.close()
    assert restore(home, target).objects == contents.objects
    with sqlite3.connect(home.path / "state.db.before-restore") as kept:
        assert kept.execute("SELECT COUNT(*) FROM current").fetchone() == (50,)
    again = Store(home.database)
    record = again.get("things", "", "t0")
    assert record is not None
    assert record.object["value"] == 0
    assert again.revision >= later.revision + RESTART_GAP
    assert stat.S_IMODE(home.database.stat().st_mode) == 0o600
    again.close()


def test_a_home_that_runs_is_not_replaced(home: Home, store: Store, tmp_path: Path) -> None:
    back_up(home, tmp_path / "copy")
    import os

    lock = home.lock()
    try:
        with pytest.raises(HomeLocked):
            restore(home, tmp_path / "copy")
    finally:
        os.close(lock)


@pytest.mark.parametrize("broken", ["none", "text", "empty", "cut", "other", "newer"])
def test_restore_refuses_invalid_backups(home: Home, store: Store, tmp_path: Path, broken: str) -> None:
    source = tmp_path / "copy"
    if broken in ("cut", "newer"):
        back_up(home, source)
    if broken == "text":
        source.write_text("no database at all " * 100)
    elif broken == "empty":
        source.touch()
    elif broken == "cut":
        source.write_bytes(source.read_bytes()[:-5000])
    elif broken == "other":
        with sqlite3.connect(source) as db:
            db.execute("CREATE TABLE a (b)")
    elif broken == "newer":
        with sqlite3.connect(source) as db:
            db.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    before = home.database.read_bytes()
    with pytest.raises(BackupFailed):
        restore(home, source)
    assert home.database.read_bytes() == before


def test_nothing_is_written_over(home: Home, store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    target.write_text("mine")
    with pytest.raises(BackupFailed, match="already exists"):
        back_up(home, target)
    assert target.read_text() == "mine"
    with pytest.raises(BackupFailed, match="no cluster in"):
        back_up(Home(tmp_path / "none"), tmp_path / "copy-2")
    with pytest.raises(FileNotFoundError):
        back_up(home, tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        (99, "a later version wrote it: use that version"),
        *((earlier, "an earlier version wrote it. To start anew, move the home") for earlier in (1, 2)),
    ],
)
def test_another_schema_is_refused_and_left_alone(home: Home, store: Store, schema: int, advice: str) -> None:
    store.close()
    with sqlite3.connect(home.database) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (schema,))
    before = home.database.read_bytes()
    with pytest.raises(UnknownSchema, match=f"schema {schema}, this version of Trainwright reads schema 3: {advice}"):
        Store(home.database)
    assert home.database.read_bytes() == before


@pytest.mark.medium
@pytest.mark.parametrize("broken", ["newer", "text"])
def test_up_says_what_is_wrong_with_the_database(home: Home, store: Store, broken: str) -> None:
    store.close()
    if broken == "text":
        home.database.write_text("no database at all " * 100)
    else:
        with sqlite3.connect(home.database) as db:
            db.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    done = CliRunner().invoke(app, ["up", "--home", str(home.path), "--port", "0"])
    assert done.exit_code != 0
    assert ("schema 99" if broken == "newer" else "file is not a database") in done.output
    assert "Traceback" not in done.output
