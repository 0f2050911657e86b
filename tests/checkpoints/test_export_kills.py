"""An exporter that is killed at any moment, again and again, never shows a reader of `latest` half an export."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from servers.s3_server import S3Server
from support.rounds import IS_LONG

from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.pointers import find_export
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.storage import open_store
from trainwright.storage.errors import StorageError
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.slow
KILLS = 500 if IS_LONG else 16
EXPORTS = """
import sys
from pathlib import Path
from trainwright.checkpoints import pin
from trainwright.checkpoints.publish import export_checkpoint
pin.QUIET_SECONDS = 0.0
print("started", flush=True)
for step in (1, 2, 3):
    export_checkpoint(Path(sys.argv[1]), sys.argv[2], source="run", step=step)
print("done", flush=True)
"""


class Reader:
    """Follows `latest` until `stop`, and reads all that it names. `broken` are the errors that it met."""

    def __init__(self, uri: str, folder: Path):
        self.stop, self.reads = threading.Event(), 0
        self.broken: list[str] = []
        self._uri, self._folder = uri, folder
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        while not self.stop.is_set():
            try:
                found = find_export(self._uri)
                verify_export(found.uri, digest=found.manifest.digest)
                self.reads += 1
            except NoCheckpoint:
                self.stop.wait(0.05)
            except (CheckpointError, StorageError) as error:
                self.broken.append(str(error))

    def join(self) -> None:
        self.stop.set()
        self._thread.join(60)


def undisturbed_seconds(output: Path, uri: str) -> float:
    """Export once without a kill. Returns how long it took."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", EXPORTS, str(output), uri], stdout=subprocess.DEVNULL, check=True, timeout=120)
    return time.monotonic() - began


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_a_reader_of_latest_never_meets_half_an_export_however_often_its_exporter_is_killed(
    s3: S3Server, s3_folder: str, tmp_path: Path, output: Path, write_checkpoint: Callable[..., Path], kind: str
) -> None:
    for step in (1, 2, 3):
        write_checkpoint(step, os.urandom(3_000_000))
    root = s3_folder if kind == "s3" else str(StorageUri.from_path(tmp_path / "exports"))
    random_, kills, run, reads = random.Random(1), 0, 0, 0
    longest = max(0.8, 1.2 * undisturbed_seconds(output, f"{root}/undisturbed"))  # a busy machine takes several seconds
    while kills < KILLS // 2:
        uri = f"{root}/{run}"
        reader = Reader(uri, tmp_path)
        is_done = False
        while not is_done:
            process = subprocess.Popen([sys.executable, "-c", EXPORTS, str(output), uri], stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            try:
                process.wait(random_.uniform(0.0, longest))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            process.wait(60)
            is_done = process.stdout.read() == "done\n" or kills >= KILLS
        reader.join()
        assert reader.broken == []
        reads += reader.reads
        run += 1
        listed = read_catalog(open_store(uri)).exports
        for each in listed:
            restore_checkpoint(each.export.uri, tmp_path / f"back-{kind}-{run}" / each.name)
    assert reads > kills // 3
