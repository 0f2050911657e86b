"""What comes back is what was exported, byte for byte and whole; anything else comes back as an error and no folder."""

import hashlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import stored_path

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.formats.hf_trainer import incomplete_reason
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.storage.errors import NoSpace, NotFound, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium


@pytest.fixture
def exported(tmp_path: Path, output: Path, write_checkpoint: Callable[..., Path]) -> Path:
    write_checkpoint(5)
    export_checkpoint(output, str(StorageUri.from_path(tmp_path / "exports")), source="run")
    return tmp_path / "exports" / "checkpoint-5"


@pytest.fixture
def uri(exported: Path) -> str:
    return str(StorageUri.from_path(exported))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "back" / "checkpoint-5"


def rewrite(manifest: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(manifest.read_bytes())
    change(document)
    manifest.write_text(json.dumps(document))


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("there", [False, True], ids=["new-folder", "empty-folder"])
def test_every_byte_comes_back(uri: str, exported: Path, target: Path, there: bool) -> None:
    if there:
        target.mkdir(parents=True)
    manifest = restore_checkpoint(uri, target)
    for file in manifest.files:
        assert (target / file.path).read_bytes() == stored_path(exported, file.path).read_bytes()
    assert incomplete_reason(target) is None
    assert [path.name for path in target.parent.iterdir()] == [target.name]
    assert target.stat().st_mode & 0o055 == 0o055  # others read the model too


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ("file", "is not a folder"),
        ("filled-folder", "is not empty, and is not this export: file is not in the manifest"),
        ("dangling-link", "is not a folder"),
    ],
)
def test_restore_refuses_an_occupied_target(uri: str, target: Path, there: str, words: str) -> None:
    target.parent.mkdir(parents=True)
    match there:
        case "file":
            target.write_bytes(b"precious")
        case "filled-folder":
            target.mkdir()
            (target / "file").write_bytes(b"precious")
        case _:
            target.symlink_to("nowhere")
    with pytest.raises(FileExistsError, match=f"exists and {words}"):
        restore_checkpoint(uri, target)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize(
    ("damage", "verified", "restored"),
    [
        (flip_last_byte, "has a different SHA-256 than in the manifest", (CheckpointError, "is corrupt")),
        (lambda path: path.write_bytes(b""), "has 0 bytes instead of", (CheckpointError, "is corrupt")),
        (lambda path: path.unlink(), "is missing", (NotFound, "does not exist")),
    ],
)
@pytest.mark.parametrize("name", ["adapter_model.safetensors", "trainer_state.json"])
def test_a_damaged_file_is_named_and_nothing_comes_back(
    uri: str,
    exported: Path,
    target: Path,
    name: str,
    damage: Callable[[Path], object],
    verified: str,
    restored: tuple[type[Exception], str],
) -> None:
    damage(stored_path(exported, name))
    with pytest.raises(CheckpointError, match=f"{name} {verified}"):
        verify_export(uri)
    with pytest.raises(restored[0], match=f"{name} {restored[1]}"):
        restore_checkpoint(uri, target)
    assert not target.exists()


def test_every_damaged_file_is_named(uri: str, exported: Path) -> None:
    stored_path(exported, "optimizer.pt").unlink()
    flip_last_byte(stored_path(exported, "scheduler.pt"))
    with pytest.raises(CheckpointError, match=r"optimizer.pt is missing; scheduler.pt has a different SHA-256"):
        verify_export(uri)


def test_a_file_and_its_manifest_changed_together_are_betrayed_by_the_digest(uri: str, exported: Path, target: Path) -> None:
    digest = verify_export(uri).digest
    changed = b'{"global_step": 5}'
    stored_path(exported, "trainer_state.json").write_bytes(changed)

    def adapt(document: dict[str, Any]) -> None:
        (entry,) = (f for f in document["files"] if f["path"] == "trainer_state.json")
        entry.update(size=len(changed), sha256=hashlib.sha256(changed).hexdigest())

    rewrite(exported / "manifest.json", adapt)
    assert verify_export(uri)
    for read in (verify_export, lambda uri, digest: restore_checkpoint(uri, target, digest=digest)):
        with pytest.raises(CheckpointError, match=f"has the digest sha256:.*, expected {digest}"):
            read(uri, digest=digest)
    assert not target.exists()


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("path", "../../victim"),
        ("path", "/tmp/victim"),
        ("key", "../../victim"),
        ("key", "/tmp/victim"),
        ("key", "link/victim"),
        ("key", "../link/victim"),
        ("key", "../checkpoint-5/link/victim"),
    ],
)
def test_a_manifest_leads_nowhere_else(tmp_path: Path, uri: str, exported: Path, target: Path, field: str, path: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "victim").write_bytes(b"secret")
    (exported / "link").symlink_to(tmp_path / "elsewhere")
    (exported.parent / "link").symlink_to(tmp_path / "elsewhere")
    rewrite(exported / "manifest.json", lambda document: document["files"][0].update({field: path}))
    for read in (lambda: verify_export(uri), lambda: restore_checkpoint(uri, target)):
        with pytest.raises((CheckpointError, StorageError), match="is outside of"):
            read()
    assert not target.exists()


def test_where_there_is_no_export_it_is_said(tmp_path: Path, target: Path) -> None:
    with pytest.raises(NoCheckpoint, match=r"file:///.*/nothing contains no export: it has no manifest\.json"):
        restore_checkpoint(str(StorageUri.from_path(tmp_path / "nothing")), target)
    assert not target.parent.exists()


def test_a_restore_that_a_full_disk_cut_off_goes_on(
    uri: str, exported: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, fetched = FileStore.get, []

    def get(self: FileStore, key: str, *args: Any) -> Any:
        if len(fetched) == 3:
            raise NoSpace("full")
        fetched.append(key)
        return real(self, key, *args)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "get", get)
        with pytest.raises(NoSpace):
            restore_checkpoint(uri, target, at_once=1)
    assert not target.exists()
    again: list[str] = []
    monkeypatch.setattr(FileStore, "get", lambda self, key, *args: (again.append(key), real(self, key, *args))[1])
    counted: list[int] = []
    manifest = restore_checkpoint(uri, target, start_progress=lambda _total: counted.append)
    assert sorted(fetched + again) == sorted(file.key for file in manifest.files)
    assert sum(counted) == manifest.size
    assert [path.name for path in target.parent.iterdir()] == [target.name]


class FetchCount:
    """Counts which files are read from a store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.fetched: list[str] = []
        real = FileStore.get

        def get(store: FileStore, key: str, *args: Any) -> Any:
            self.fetched.append(key)
            return real(store, key, *args)

        monkeypatch.setattr(FileStore, "get", get)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_files_fetched_by_an_interrupted_restore_are_reused(
    uri: str, target: Path, monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    count = FetchCount(monkeypatch)

    def interrupt(done: int) -> None:
        if len(count.fetched) == 4:
            raise interruption

    with pytest.raises(interruption):
        restore_checkpoint(uri, target, start_progress=lambda _total: interrupt, at_once=1)
    before = count.fetched[:3]
    count.fetched.clear()
    restore_checkpoint(uri, target)
    assert set(count.fetched).isdisjoint(before)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_corrupt_file_does_not_throw_the_others_away(
    uri: str, exported: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = stored_path(exported, "trainer_state.json")
    whole = state.read_bytes()
    flip_last_byte(state)
    with pytest.raises(CheckpointError, match="is corrupt"):
        restore_checkpoint(uri, target, at_once=1)
    state.write_bytes(whole)
    count = FetchCount(monkeypatch)
    restore_checkpoint(uri, target)
    assert [key.rpartition("/")[2] for key in count.fetched] == ["trainer_state.json"]


def test_of_two_restores_to_one_folder_one_works_and_one_waits(uri: str, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, started, go_on = FetchCount(monkeypatch), threading.Event(), threading.Event()

    def hold(_done: int) -> None:
        started.set()
        assert go_on.wait(20)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(restore_checkpoint, uri, target, start_progress=lambda _total: hold)
        assert started.wait(20)
        second = pool.submit(restore_checkpoint, uri, target)
        assert not second.done()
        go_on.set()
        assert first.result(20) == second.result(20)
    assert len(count.fetched) == len(set(count.fetched))


def test_a_folder_that_has_the_export_already_is_left_as_it_is(uri: str, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restore_checkpoint(uri, target)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    count = FetchCount(monkeypatch)
    restore_checkpoint(uri, target)
    assert count.fetched == []
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


def test_a_manifest_of_another_step_than_its_content_is_refused(uri: str, exported: Path, target: Path) -> None:
    rewrite(exported / "manifest.json", lambda document: document.update(step=6))
    for read in (lambda: verify_export(uri), lambda: restore_checkpoint(uri, target)):
        with pytest.raises(CheckpointError, match=r"the manifest is of step 6, but trainer_state\.json of step 5"):
            read()
    assert not target.exists()


def test_the_name_of_a_target_may_be_as_long_as_names_can_be(uri: str, tmp_path: Path) -> None:
    target = tmp_path / ("ü" * 127)
    assert restore_checkpoint(uri, target) == restore_checkpoint(uri, target)
    assert {path.name for path in tmp_path.iterdir()} >= {target.name}
    assert not list(tmp_path.glob("*.lock"))
