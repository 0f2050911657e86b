"""An export that is cut off anywhere does not exist for readers, and goes on where it stopped when it is run again."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.storage import transfer
from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium

FILES = 7  # of a written checkpoint, that are exported
WRITES = FILES + 2  # and the manifest, and the pointer
DIES = """
import os, signal, sys
from pathlib import Path
from trainwright.checkpoints.publish import export_checkpoint
left = int(sys.argv[3])
def on_progress(count):
    global left
    left -= count
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
export_checkpoint(Path(sys.argv[1]), sys.argv[2], source="run", start_progress=lambda total: on_progress)
"""


class Dead(BaseException):
    """As a process that is killed: nothing handles it."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "exports"


@pytest.fixture
def uri(target: Path) -> str:
    return str(StorageUri.from_path(target))


@pytest.fixture
def fails_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, BaseException], list[str]]]:
    """From the n-th write of a store on everything fails; returns the keys that were written, to a disk one after another."""

    def arm(number: int, error: BaseException) -> list[str]:
        written: list[str] = []
        for name, position in (("put", 1), ("create", 0), ("replace", 0)):
            real = getattr(FileStore, name)

            def write(self: FileStore, *args: Any, real: Any = real, position: int = position, **options: Any) -> Any:
                if len(written) >= number:
                    raise error
                written.append(args[position])
                return real(self, *args, **options)

            monkeypatch.setattr(FileStore, name, write)
        return written

    with monkeypatch.context():
        yield arm
    monkeypatch.undo()


@pytest.mark.parametrize("number", range(WRITES))
@pytest.mark.parametrize("error", [Dead(), NoSpace("full")], ids=["killed", "disk-full"])
def test_an_export_that_is_cut_off_at_any_write_goes_on_there(
    output: Path,
    target: Path,
    uri: str,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    fails_at: Callable[[int, BaseException], list[str]],
    number: int,
    error: BaseException,
) -> None:
    write_checkpoint(5)
    first = fails_at(number, error)
    with pytest.raises(type(error)):
        export_checkpoint(output, uri, source="run")
    assert not (target / "latest.json").exists()
    published = (target / "checkpoint-5" / "manifest.json").exists()
    assert published == (number == WRITES - 1)
    if published:
        verify_export(f"{uri}/checkpoint-5")
    else:
        for read in (
            lambda: verify_export(f"{uri}/checkpoint-5"),
            lambda: restore_checkpoint(f"{uri}/checkpoint-5", target / "x"),
        ):
            with pytest.raises(NoCheckpoint, match=r"contains no export: it has no manifest\.json"):
                read()
    assert [path.name for path in output.iterdir()] == ["checkpoint-5"]
    monkeypatch.undo()
    second = fails_at(99, error)
    exported = export_checkpoint(output, uri, source="run")
    assert sorted(first + second) == sorted({*first, *second})  # no key is written twice
    assert exported.existed == published
    assert verify_export(exported.uri, digest=exported.digest)
    assert json.loads((target / "latest.json").read_bytes())["manifest"] == exported.digest


@pytest.mark.medium
def test_an_export_that_is_killed_leaves_nothing_behind_once_it_is_run_again(
    output: Path, target: Path, uri: str, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5, os.urandom(50_000))
    for allowed in (0, 200, 50_400):
        process = subprocess.run([sys.executable, "-c", DIES, str(output), uri, str(allowed)], check=False)
        assert process.returncode == -signal.SIGKILL
        assert not list(target.rglob("manifest.json"))
        assert any(path.name.startswith(".") for path in output.iterdir())  # its pin
    exported = export_checkpoint(output, uri, source="run")
    assert verify_export(exported.uri, digest=exported.digest)
    assert [path.name for path in output.iterdir()] == ["checkpoint-5"]
    lock_files = [path for path in target.rglob("*") if path.suffix == ".lock"]
    assert lock_files == []
    listed = {f.key for f in exported.manifest.files} | {"manifest.json"}
    found = {p.relative_to(target / "checkpoint-5").as_posix() for p in (target / "checkpoint-5").rglob("*") if p.is_file()}
    assert found == listed


@pytest.mark.parametrize("links", [True, False], ids=["hard-links", "no-hard-links"])
@pytest.mark.parametrize("rotated_at", range(0, FILES + 1, 3))
def test_a_checkpoint_that_is_rotated_away_meanwhile_is_exported_whole_or_not_at_all(
    output: Path,
    target: Path,
    uri: str,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    links: bool,
    rotated_at: int,
) -> None:
    folder = write_checkpoint(5)
    if not links:
        monkeypatch.setattr(os, "link", _fails(errno.EPERM))
    real, count = FileStore.put, 0

    def put(self: FileStore, *args: Any, **options: Any) -> Any:
        nonlocal count
        if count == rotated_at:
            shutil.rmtree(folder)
        count += 1
        return real(self, *args, **options)

    monkeypatch.setattr(FileStore, "put", put)
    if links or rotated_at >= FILES:
        exported = export_checkpoint(output, uri, source="run")
        assert len(verify_export(exported.uri).files) == FILES
    else:
        with pytest.raises((CheckpointError, StorageError), match="checkpoint-5"):
            export_checkpoint(output, uri, source="run")
        assert not (target / "checkpoint-5" / "manifest.json").exists()
        assert not (target / "latest.json").exists()


def _fails(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("goes", ["adapter_model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_a_rotation_that_has_begun_before_the_files_are_pinned_is_noticed(
    output: Path, target: Path, uri: str, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, goes: str
) -> None:
    folder = write_checkpoint(5)
    real = os.link

    def link(source: Path, *args: Any, **options: Any) -> None:
        (folder / goes).unlink(missing_ok=True)
        real(source, *args, **options)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CheckpointError, match="checkpoint-5 was removed or changed during the export"):
        export_checkpoint(output, uri, source="run")
    assert not (target / "checkpoint-5").exists()


def test_a_rotation_that_took_an_optional_file_before_anybody_looked_is_noticed_by_what_it_takes_next(
    output: Path, target: Path, uri: str, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(5, **{"nested/ü.txt": None})
    real = os.link

    def link(source: Path, *args: Any, **options: Any) -> None:
        real(source, *args, **options)
        (folder / "adapter_config.json").unlink(missing_ok=True)  # pinned already

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CheckpointError, match="checkpoint-5 was removed or changed during the export"):
        export_checkpoint(output, uri, source="run")
    assert not (target / "checkpoint-5").exists()


def test_a_checkpoint_that_is_written_anew_meanwhile_is_not_published(
    output: Path, target: Path, uri: str, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(5)
    real = FileStore.put

    def put(self: FileStore, source: Path, key: str, *args: Any, **options: Any) -> Any:
        stored = real(self, source, key, *args, **options)
        if source.name == "adapter_model.safetensors":  # in place: a hard link does not protect from that
            with open(folder / source.name, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"!")
            os.utime(folder / source.name, ns=(1, 1))
        return stored

    monkeypatch.setattr(FileStore, "put", put)
    with pytest.raises(CheckpointError, match=r"is still being written \(adapter_model\.safetensors changed\)"):
        export_checkpoint(output, uri, source="run")
    assert not (target / "checkpoint-5" / "manifest.json").exists()


@pytest.mark.parametrize("times", [1, 99])
def test_corrupted_upload_is_sent_again_and_never_published(
    output: Path, target: Path, uri: str, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    write_checkpoint(5)
    real, damaged = FileStore.put, []

    def put(self: FileStore, source: Path, key: str, *args: Any, **options: Any) -> Any:
        stored = real(self, source, key, *args, **options)
        if source.name == "optimizer.pt" and len(damaged) < times:
            damaged.append(key)
            content = (target / key).read_bytes()
            (target / key).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        return stored

    monkeypatch.setattr(FileStore, "put", put)
    if times == 1:
        assert verify_export(export_checkpoint(output, uri, source="run").uri)
        return
    with pytest.raises(CheckpointError, match=r"returns other data than was sent for optimizer\.pt; not published"):
        export_checkpoint(output, uri, source="run")
    assert not (target / "checkpoint-5" / "manifest.json").exists()


def test_an_export_that_goes_on_needs_room_only_for_the_rest(
    output: Path,
    uri: str,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    fails_at: Callable[..., list[str]],
) -> None:
    write_checkpoint(5, b"w" * 100_000)
    fails_at(3, NoSpace("full"))
    with pytest.raises(NoSpace):
        export_checkpoint(output, uri, source="run")
    monkeypatch.undo()
    free = transfer._HEADROOM + 50_000
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(free, 0, free))
    assert verify_export(export_checkpoint(output, uri, source="run").uri)


def test_a_disk_that_is_too_full_is_noticed_before_anything_is_sent(
    output: Path, target: Path, uri: str, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(5)
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(1, 0, 1))
    with pytest.raises(NoSpace, match="needed, 1 B free"):
        export_checkpoint(output, uri, source="run")
    assert not (target / "checkpoint-5").exists()


def test_a_read_only_output_is_exported(
    output: Path, uri: str, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(5)
    real = Path.mkdir

    def mkdir(self: Path, *args: Any, **options: Any) -> None:
        if self.is_relative_to(output):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        real(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert verify_export(export_checkpoint(output, uri, source="run").uri)
