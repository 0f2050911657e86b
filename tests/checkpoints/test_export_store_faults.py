"""Whatever a store and the way to it do: what is published is whole, what was sent is confirmed, and an outage is waited out."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checkpoint_files import torch_file
from servers.faulty_store import FAULTS, FaultyStore, faulty_store, once, schedule
from servers.s3_server import S3Server
from support.rounds import IS_LONG
from support.waiting import eventually

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.pointers import find_export
from trainwright.checkpoints.publish import ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.storage.errors import StorageError
from trainwright.storage.objects import connection as object_connection

pytestmark = pytest.mark.medium
LARGE = os.urandom(14 * 1024 * 1024)
FEW = 8
SCHEDULES = [FEW, pytest.param(2000 if IS_LONG else 40, marks=pytest.mark.wide(part="faults"))]
DOWN_SECONDS = 60.0 if IS_LONG else 15.0


@pytest.fixture
def faulty(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    """The server, reached through a proxy with faults. What goes to `s3.endpoint` has none."""
    with faulty_store(s3.endpoint) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.address)
        yield store


@pytest.fixture
def directly(s3: S3Server, monkeypatch: pytest.MonkeyPatch, faulty: FaultyStore) -> Callable[[], None]:
    """Called, it takes the proxy out of the way."""
    return lambda: monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)


def export(output: Path, uri: str) -> ExportResult:
    return export_checkpoint(output, uri, source="run")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "optimizer.pt"])
def test_a_byte_that_is_flipped_on_its_way_is_never_published(
    faulty: FaultyStore,
    directly: Callable[[], None],
    s3_folder: str,
    output: Path,
    write_checkpoint: Callable[..., Path],
    name: str,
) -> None:
    write_checkpoint(5, LARGE, **{"optimizer.pt": torch_file(b"x" * 1000)})
    faulty.choose = once("flip-request", "PUT", name)
    exported = export(output, s3_folder)
    assert faulty.count("flip-request") == 1
    directly()
    assert verify_export(exported.uri, digest=exported.digest)


def test_a_store_that_always_damages_a_file_publishes_nothing(
    faulty: FaultyStore,
    directly: Callable[[], None],
    s3_folder: str,
    output: Path,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_connection, "OUTAGE_SECONDS", 2.0)
    write_checkpoint(5)
    faulty.choose = once("flip-request", "PUT", "optimizer.pt", times=10_000)
    with pytest.raises((CheckpointError, StorageError), match=r"BadDigest|not published"):
        export(output, s3_folder)
    directly()
    with pytest.raises(NoCheckpoint):
        verify_export(f"{s3_folder}/checkpoint-5")


def test_a_byte_that_is_flipped_on_its_way_back_is_fetched_again(
    faulty: FaultyStore, s3_folder: str, output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5, LARGE)
    exported = export(output, s3_folder)
    faulty.choose = once("flip-response", "GET", "adapter_model.safetensors")
    restore_checkpoint(exported.uri, tmp_path / "back", digest=exported.digest)
    assert faulty.count("flip-response") == 1
    assert (tmp_path / "back" / "adapter_model.safetensors").read_bytes().endswith(LARGE)


@pytest.mark.parametrize("fault", ["cut-response", "truncate", "wrong-length"])
def test_a_download_that_breaks_goes_on_where_it_was(
    faulty: FaultyStore, s3_folder: str, output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path], fault: str
) -> None:
    write_checkpoint(5, LARGE)
    exported = export(output, s3_folder)
    faulty.choose = once(fault, "GET", "adapter_model.safetensors")
    counted: list[int] = []
    restore_checkpoint(exported.uri, tmp_path / "back", start_progress=lambda _total: counted.append)
    assert faulty.count(fault) == 1
    assert sum(counted) == exported.manifest.size


@pytest.mark.slow
def test_an_outage_is_waited_out(
    faulty: FaultyStore, s3_folder: str, output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5, LARGE)
    choose = once("", "PUT", "")

    def goes_down(method: str, path: str) -> str:
        if "adapter_model.safetensors" in path and not faulty.is_down and len(faulty.seen) < 10_000:
            faulty.is_down = True
            faulty.choose = choose
            threading.Timer(DOWN_SECONDS, lambda: setattr(faulty, "is_down", False)).start()
        return ""

    faulty.choose = goes_down
    started = time.monotonic()
    exported = export(output, s3_folder)
    assert time.monotonic() - started >= DOWN_SECONDS
    assert verify_export(exported.uri, digest=exported.digest)


@pytest.mark.slow
def test_a_wrong_address_is_no_outage(
    s3: S3Server, output: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(5)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    started = time.monotonic()
    with pytest.raises(StorageError, match="cannot be reached"):
        export(output, "s3://bucket/x")
    assert time.monotonic() - started < 20


FROZEN = """
import os, signal, sys
from pathlib import Path
from trainwright.checkpoints import pin
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.storage.objects import lease as object_lease, object_store
pin.QUIET_SECONDS = 0.0
real, frozen = object_store.ObjectStore.put, []
def put(self, source, key, *args, **options):
    if source.name == sys.argv[3] and not frozen:
        frozen.append(key)
        os.kill(os.getpid(), signal.SIGSTOP)
    return real(self, source, key, *args, **options)
object_store.ObjectStore.put = put
print(export_checkpoint(Path(sys.argv[1]), sys.argv[2], source="frozen").existed)
"""


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "trainer_state.json"])
def test_an_exporter_that_was_frozen_beyond_its_lease_damages_nothing_when_it_wakes_up(
    s3: S3Server, s3_folder: str, output: Path, write_checkpoint: Callable[..., Path], name: str
) -> None:
    write_checkpoint(5, LARGE)
    frozen = subprocess.Popen(
        [sys.executable, "-c", FROZEN, str(output), s3_folder, name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: Path(f"/proc/{frozen.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        exported = export_checkpoint_with_short_lease(output, s3_folder)
        before = verify_export(exported.uri, digest=exported.digest)
        frozen.send_signal(signal.SIGCONT)
        out, err = frozen.communicate(timeout=60)
    finally:
        frozen.kill()
    assert "the lock was lost" in err or "another process exported this checkpoint" in err, out + err
    assert verify_export(exported.uri, digest=exported.digest) == before
    assert find_export(s3_folder).manifest == before


def export_checkpoint_with_short_lease(output: Path, uri: str) -> ExportResult:
    from trainwright.storage.objects.s3_store import S3Store
    from trainwright.storage.uri import StorageUri

    store = S3Store(StorageUri.parse(uri), lease_seconds=2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainwright.checkpoints.publish.open_store", lambda _uri: store)
        return export_checkpoint(output, uri, source="second")


@pytest.mark.parametrize("schedules", SCHEDULES)
@pytest.mark.slow
def test_published_export_is_complete_under_any_schedule_of_faults(
    s3: S3Server,
    faulty: FaultyStore,
    s3_folder: str,
    output: Path,
    write_checkpoint: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    schedules: int,
) -> None:
    monkeypatch.setattr(object_connection, "OUTAGE_SECONDS", 1.0)
    monkeypatch.setattr(object_connection, "FIRST_CONTACT_SECONDS", 0.5)
    write_checkpoint(1, os.urandom(200_000))
    outcomes = {"published": 0, "refused": 0}
    for seed in range(schedules):
        uri = f"{s3_folder}/{seed}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.address)
        faulty.choose = schedule(seed, 0.05 + 0.3 * (seed % 5) / 4)
        try:
            digest = export(output, uri).digest
            outcomes["published"] += 1
        except (CheckpointError, StorageError):
            outcomes["refused"] += 1
            digest = ""
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        try:
            found = verify_export(f"{uri}/checkpoint-1").digest
        except NoCheckpoint:
            found = ""
        assert found or not digest, f"seed {seed}: not published although it was said"
        assert not digest or found == digest, f"seed {seed}"
        if seed % 10 == 0:  # the next one goes on
            exported = export(output, uri)
            assert verify_export(exported.uri, digest=exported.digest)
            assert find_export(uri).manifest.digest == exported.digest
    if schedules > FEW:
        assert {fault for _, _, fault in faulty.seen} >= set(FAULTS)
        assert min(outcomes.values()) > schedules // 10, outcomes
