"""The shared store: a folder appears whole and read-only, once for all who prepare the same, and a damaged one is replaced."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainwright.storage.errors import StorageError
from trainwright.workspace import PreparedMismatch, Receipt, check_prepared, publish, verify_prepared
from trainwright.workspace import prepared as module
from trainwright.workspace.prepared import find_prepared, record_entry
from trainwright.workspace.receipt import NAME, read_receipt

Finished = Callable[..., tuple[Path, Receipt]]


def hex_of(receipt: Receipt) -> str:
    return receipt.digest.removeprefix("sha256:")


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".index")


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", none)


def test_a_folder_appears_under_its_digest_and_is_read_only(workspace: Path, finished: Finished) -> None:
    folder, receipt = finished()
    place = publish("dataset", folder, receipt, workspace)
    assert place == workspace / "datasets" / hex_of(receipt)
    assert not folder.exists()
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*") if path.is_file()} == {0o444}
    assert verify_prepared("dataset", place, receipt.digest) == receipt
    assert visible(place.parent) == [place.name]


def test_the_folders_are_writable_for_the_group_where_the_umask_allows_it(workspace: Path, finished: Finished) -> None:
    before = os.umask(0o002)
    try:
        place = publish("dataset", *finished(), workspace)
    finally:
        os.umask(before)
    for folder in (place, place / "sub", place.parent, place.parent / ".index"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o775, folder


def test_the_second_drops_its_own(workspace: Path, finished: Finished) -> None:
    first = publish("dataset", *finished(), workspace)
    before = {path: path.stat().st_ino for path in first.rglob("*")}
    folder, receipt = finished(source="file:///elsewhere", name="second")
    assert publish("dataset", folder, receipt, workspace) == first
    assert {path: path.stat().st_ino for path in first.rglob("*")} == before
    for source in ("file:///rows", "file:///elsewhere"):
        found = find_prepared(workspace, "dataset", source, "1", {})
        assert found is not None
        assert found.receipt.source == source
        assert found.folder == first


def _cut(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])


def _change(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"x" * path.stat().st_size)


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "train.jsonl").unlink(),
        lambda place: _cut(place / "train.jsonl"),
        lambda place: _change(place / "sub/test.jsonl"),
        lambda place: (place / NAME).unlink(),
        lambda place: ((place / NAME).chmod(0o644), (place / NAME).write_bytes(b"{")),
        lambda place: (shutil.rmtree(place), place.write_bytes(b"")),
        lambda place: (shutil.rmtree(place), place.symlink_to(place.parent)),
        lambda place: (shutil.rmtree(place), place.mkdir()),
    ],
)
def test_a_damaged_one_is_not_found_and_is_replaced(
    workspace: Path, finished: Finished, request: pytest.FixtureRequest, damage: Callable[[Path], object], locks: bool
) -> None:
    if not locks:
        request.getfixturevalue("without_locks")
    folder, receipt = finished()
    place = publish("dataset", folder, receipt, workspace)
    damage(place)
    assert find_prepared(workspace, "dataset", "file:///rows", "1", {}) is None
    with pytest.raises(PreparedMismatch, match=f"{place}: "):
        verify_prepared("dataset", place, receipt.digest)
    folder, receipt = finished()
    assert publish("dataset", folder, receipt, workspace) == place
    assert verify_prepared("dataset", place, receipt.digest) == receipt
    names = visible(place.parent)
    assert [name for name in names if not name.endswith(".lock")] == [place.name]


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.parametrize("damaged", [True, False])
def test_many_at_once_leave_one_whole_folder(
    workspace: Path, finished: Finished, request: pytest.FixtureRequest, locks: bool, damaged: bool
) -> None:
    if not locks:
        request.getfixturevalue("without_locks")
    if damaged:
        (publish("dataset", *finished(), workspace) / "train.jsonl").unlink()
    ours = [finished(name=str(number)) for number in range(6)]
    barrier = threading.Barrier(6)

    def run(number: int) -> Path:
        barrier.wait()
        return publish("dataset", *ours[number], workspace)

    with ThreadPoolExecutor(6) as pool:
        places = set(pool.map(run, range(6)))
    (place,) = places
    assert ours[0][1].matches(place)
    assert [name for name in visible(place.parent) if not name.endswith(".lock")] == [place.name]


def test_without_locks_a_whole_one_that_was_taken_for_damaged_goes_back(workspace: Path, finished: Finished) -> None:
    """Another process replaced it between our look and our rename."""
    folder, receipt = finished()
    place = publish("dataset", folder, receipt, workspace)
    module._discard(place, receipt)
    assert receipt.matches(place)
    assert visible(place.parent) == [place.name]


def test_repeatedly_damaged_folder_is_an_error(workspace: Path, finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    place = publish("dataset", *finished(), workspace)
    (place / "train.jsonl").unlink()

    def damaged_again(_target: Path) -> Path:
        raise FileNotFoundError("another process has replaced it")

    monkeypatch.setattr(module, "mark_deleted", damaged_again)
    with pytest.raises(StorageError, match="another process wrote a corrupt folder at every attempt"):
        publish("dataset", *finished(), workspace)


@pytest.mark.parametrize(
    ("revision", "options", "found"),
    [("1", {}, True), (None, {}, True), ("1", None, True), (None, None, True), ("2", {}, False), ("1", {"x": 1}, False)],
)
def test_find_prepared_matches_source_revision_and_options(
    workspace: Path, finished: Finished, revision: str | None, options: dict[str, object] | None, found: bool
) -> None:
    publish("dataset", *finished(), workspace)
    assert (find_prepared(workspace, "dataset", "file:///rows", revision, options) is not None) is found
    assert find_prepared(workspace, "dataset", "file:///row", None, None) is None
    assert find_prepared(workspace, "model", "file:///rows", None, None) is None


def test_of_a_source_that_cannot_be_asked_the_newest_is_taken(workspace: Path, finished: Finished) -> None:
    digests = []
    for number in (1, 2):
        folder, receipt = finished({"train.jsonl": b"%d" % number}, revision=str(number), name=str(number))
        publish("dataset", folder, receipt, workspace)
        digests.append(receipt.digest)
        for path in (workspace / "datasets" / ".index").iterdir():
            os.utime(path, ns=(path.stat().st_mtime_ns - 10**9,) * 2)
    found = find_prepared(workspace, "dataset", "file:///rows", None, {})
    assert found is not None
    assert found.digest == digests[1]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"kind": "dataset", "source": "file:///rows", "revision": "1", "digest": "../.."}']
)
def test_an_entry_that_makes_no_sense_is_ignored(workspace: Path, finished: Finished, content: bytes) -> None:
    publish("dataset", *finished(), workspace)
    (entry,) = (workspace / "datasets" / ".index").iterdir()
    entry.write_bytes(content)
    assert find_prepared(workspace, "dataset", "file:///rows", "1", {}) is None


def test_finding_one_touches_it(workspace: Path, finished: Finished) -> None:
    place = publish("dataset", *finished(), workspace)
    os.utime(place, (1, 1))
    assert find_prepared(workspace, "dataset", "file:///rows", "1", {}) is not None
    assert place.stat().st_mtime > 1


def test_the_wrong_one_is_named_with_both_digests_and_the_folder(workspace: Path, finished: Finished) -> None:
    folder, receipt = finished()
    place = publish("dataset", folder, receipt, workspace)
    other = "sha256:" + "0" * 64
    for check in (check_prepared, verify_prepared):
        with pytest.raises(PreparedMismatch) as caught:
            check("dataset", place, other)
        assert all(text in str(caught.value) for text in (other, receipt.digest, str(place)))
        with pytest.raises(PreparedMismatch, match=r"expected the prepared model .* found a dataset"):
            check("model", place, receipt.digest)
        with pytest.raises(PreparedMismatch, match=f"{NAME} is missing or invalid"):
            check("dataset", place / "sub", receipt.digest)


def test_a_look_compares_sizes_and_a_verification_compares_contents(workspace: Path, finished: Finished) -> None:
    folder, receipt = finished()
    place = publish("dataset", folder, receipt, workspace)
    _change(place / "train.jsonl")
    assert check_prepared("dataset", place, receipt.digest) == receipt
    with pytest.raises(PreparedMismatch, match=r"corrupt: train\.jsonl has a different SHA-256; prepare the dataset again"):
        verify_prepared("dataset", place, receipt.digest)
    _cut(place / "train.jsonl")
    with pytest.raises(PreparedMismatch, match=r"corrupt: train\.jsonl has 13 bytes instead of 14"):
        check_prepared("dataset", place, receipt.digest)


def test_a_receipt_with_paths_that_lead_out_of_its_folder_is_none(workspace: Path, finished: Finished) -> None:
    folder, receipt = finished()
    for path in ("../x", "/x", "a/../../x", "", "."):
        text = receipt.model_dump_json().replace('"train.jsonl"', f'"{path}"')
        (folder / NAME).write_text(text)
        assert read_receipt(folder) is None


KILLED = """
import os, pathlib, signal, sys
from trainwright.workspace import prepared, publish, read_receipt
workspace, folder, when = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
real = os.rename
def rename(source, target):
    if when == "before": die()
    real(source, target)
    if when == "after" and target.parent.name == "datasets": die()
    if when == "aside" and ".deleted-" in target.name: die()
os.rename = rename
if when == "index": prepared.record_entry = die
publish("dataset", folder, read_receipt(folder), workspace)
"""


@pytest.mark.medium
@pytest.mark.parametrize("when", ["before", "after", "aside", "index"])
def test_a_kill_at_any_time_leaves_a_whole_folder_or_none(workspace: Path, finished: Finished, when: str) -> None:
    if when == "aside":
        (publish("dataset", *finished(), workspace) / "train.jsonl").unlink()
    folder, receipt = finished()
    command = [sys.executable, "-c", KILLED, str(workspace), str(folder), when]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    place = workspace / "datasets" / hex_of(receipt)
    assert place.exists() is (when in ("after", "index"))
    assert not place.exists() or receipt.matches(place)
    folder, receipt = finished(name="again")
    assert publish("dataset", folder, receipt, workspace) == place
    assert receipt.matches(place)
    assert find_prepared(workspace, "dataset", "file:///rows", "1", {}) is not None


@pytest.mark.medium
def test_processes_that_publish_at_once_leave_one_whole_folder(workspace: Path, finished: Finished) -> None:
    code = """
import pathlib, sys
from trainwright.workspace import publish, read_receipt
workspace, folder = map(pathlib.Path, sys.argv[1:])
receipt = read_receipt(folder)
print("ready", flush=True)
sys.stdin.readline()
print(publish("dataset", folder, receipt, workspace))
"""
    ours = [finished(name=str(number)) for number in range(3)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(workspace), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for folder, _ in ours
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in processes]
    place = workspace / "datasets" / hex_of(ours[0][1])
    assert said == [f"{place}\n"] * 3
    assert ours[0][1].matches(place)
    assert visible(place.parent) == [place.name]


def test_an_index_that_is_written_again_stays_one_entry(workspace: Path, finished: Finished) -> None:
    _, receipt = finished()
    for _ in range(2):
        record_entry(workspace, "dataset", receipt)
    assert len(list((workspace / "datasets" / ".index").iterdir())) == 1
