"""While training runs, every checkpoint is exported as soon as it is whole, rotation or not, and the last one after its end."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.prune import Retention
from trainwright.checkpoints.publish import ExportResult
from trainwright.checkpoints.restore import verify_export
from trainwright.checkpoints.watch import Watch
from trainwright.storage import open_store
from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium

Start = Callable[..., tuple[Watch, list[ExportResult]]]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(StorageUri.from_path(tmp_path / "exports"))


@pytest.fixture(params=["events", "polling"])
def start(request: pytest.FixtureRequest, output: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """A watch in a thread, which ends with the test."""
    running: list[tuple[Watch, threading.Thread]] = []
    if request.param == "polling":
        monkeypatch.setitem(sys.modules, "watchfiles", None)

    def begin(**options: Any) -> tuple[Watch, list[ExportResult]]:
        exported: list[ExportResult] = []
        poll = 0.05 if request.param == "polling" else 5.0
        settings: dict[str, Any] = {"poll_seconds": poll, **options}
        watch = Watch(output, uri, "run", threading.Event(), on_export=exported.append, **settings)
        thread = threading.Thread(target=watch.run)
        thread.start()
        running.append((watch, thread))
        return watch, exported

    yield begin
    for watch, thread in running:
        watch.stop.set()
        thread.join(30)
        assert not thread.is_alive()


def steps(exported: list[ExportResult]) -> list[int]:
    return [each.manifest.step for each in exported]


def test_each_checkpoint_is_exported_when_it_is_whole(
    output: Path, uri: str, write_checkpoint: Callable[..., Path], start: Start
) -> None:
    output.mkdir()
    _, exported = start()
    for step in (5, 10):
        state = write_checkpoint(step) / "trainer_state.json"
        eventually(lambda step=step: step in steps(exported))
        assert state.exists()
    write_checkpoint(15, **{"trainer_state.json": None})
    write_checkpoint(20)
    eventually(lambda: 20 in steps(exported))
    assert steps(exported) == [5, 10, 20]
    for each in read_catalog(open_store(uri)).exports:
        assert verify_export(each.export.uri)


def test_the_last_checkpoint_is_exported_after_the_end_and_old_ones_are_deleted(
    output: Path, uri: str, write_checkpoint: Callable[..., Path], start: Start
) -> None:
    for step in (5, 10):
        write_checkpoint(step)
    watch, exported = start(retention=Retention(keep_last=1))
    eventually(lambda: len(exported) == 2)
    write_checkpoint(15)
    watch.stop.set()
    eventually(lambda: steps(exported) == [5, 10, 15])
    eventually(lambda: [each.name for each in read_catalog(open_store(uri)).exports] == ["checkpoint-15"])


def test_an_error_of_the_store_is_tried_again(
    output: Path, write_checkpoint: Callable[..., Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = FileStore.put, []

    def put(self: FileStore, *args: Any, **options: Any) -> Any:
        if not failed:
            failed.append(True)
            raise StorageError("the store is away")
        return real(self, *args, **options)

    monkeypatch.setattr(FileStore, "put", put)
    write_checkpoint(5)
    watch, exported = start(poll_seconds=0.1)
    eventually(lambda: steps(exported) == [5])
    assert (failed, watch.failure) == ([True], "")


def test_checkpoint_rotated_away_during_export_is_skipped(
    output: Path, write_checkpoint: Callable[..., Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(5)
    gone: list[Path] = []

    def removed(*_args: Any, **_options: Any) -> Any:
        gone.append(output / "checkpoint-5")
        shutil.rmtree(output / "checkpoint-5", ignore_errors=True)
        raise StorageError("no such file")

    monkeypatch.setattr("trainwright.checkpoints.watch.export_checkpoint", removed)
    watch, exported = start(poll_seconds=0.1)
    eventually(lambda: gone)
    assert (watch.failure, exported) == ("", [])


def test_a_target_that_is_none_ends_the_watch_at_once(output: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    with pytest.raises(BadUri):
        Watch(output, "exports", "run", threading.Event()).run()


SAVES = """
import shutil, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from checkpoint_files import checkpoint_files
output = Path(sys.argv[1])
for step in range(1, 31):
    folder = output / f"checkpoint-{step}"
    for name, content in sorted(checkpoint_files(step, b"w" * 200_000).items(), key=lambda each: each[0] == "trainer_state.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    shutil.rmtree(output / f"checkpoint-{step - 2}", ignore_errors=True)
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_a_training_that_saves_and_rotates_meanwhile_never_publishes_half_a_checkpoint(
    output: Path, uri: str, start: Start
) -> None:
    output.mkdir()
    _, exported = start(poll_seconds=0.05)
    done = subprocess.run([sys.executable, "-c", SAVES, str(output), str(Path(__file__).parent)], check=True)
    assert done.returncode == 0
    eventually(lambda: 30 in steps(exported))
    assert len(exported) >= 5
    for each in read_catalog(open_store(uri)).exports:
        assert verify_export(each.export.uri)


@pytest.mark.slow
def test_an_idle_watch_costs_next_to_nothing(output: Path, uri: str, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    program = (
        "import sys, threading, time; from pathlib import Path; from trainwright.checkpoints.watch import Watch\n"
        "stop = threading.Event(); started = threading.Event()\n"
        "watch = Watch(Path(sys.argv[1]), sys.argv[2], 'run', stop, on_export=lambda _: started.set())\n"
        "thread = threading.Thread(target=watch.run); thread.start(); started.wait(60)\n"
        "cpu, wall = time.process_time(), time.monotonic(); stop.wait(12)\n"
        "print((time.process_time() - cpu) / (time.monotonic() - wall)); stop.set(); thread.join()\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program, str(output), uri], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 0.005, f"{done.stdout} of a core in {time.monotonic() - began:.0f} s"
