"""The promises of an export hold at a real S3 store: manifest last, goes on where it stopped, one publisher, damage noticed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import torch_file
from servers.s3_server import BUCKET, S3Server

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.storage import open_store
from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import NoAccess, NoBucket, StorageError, Unreachable
from trainwright.storage.objects.lease import LEASE_SECONDS
from trainwright.storage.objects.object_reader import ObjectReader
from trainwright.storage.objects.object_store import ObjectStore
from trainwright.storage.objects.s3_store import S3Store

pytestmark = pytest.mark.medium
WRITES = 9  # seven files of a written checkpoint, the manifest and the pointer
LARGE = os.urandom(20 * 1024 * 1024 + 7)
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


def export(output: Path, uri: str, **options: Any) -> ExportResult:
    return export_checkpoint(output, uri, source="run", **options)


def latest(uri: str) -> dict[str, Any]:
    pointer: dict[str, Any] = json.loads(open_store(uri).read("latest.json"))
    return pointer


def names(s3: S3Server, uri: str) -> list[str]:
    prefix = uri.removeprefix(f"s3://{BUCKET}/") + "/"
    pages = s3.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"].removeprefix(prefix) for page in pages for entry in page.get("Contents", [])]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_export_comes_back_as_it_was(
    s3: S3Server, s3_folder: str, output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(5, LARGE, **{"ü/漢字 %20.txt": b"x", "empty": b""})
    counted: list[int] = []
    exported = export(output, s3_folder, start_progress=lambda _total: counted.append)
    assert sum(counted) == exported.manifest.size
    assert latest(s3_folder)["manifest"] == exported.digest
    assert exported.manifest.confirmed == "checked"
    listed = {f"checkpoint-5/{file.key}" for file in exported.manifest.files}
    assert set(names(s3, s3_folder)) == listed | {"checkpoint-5/manifest.json", "latest.json"}
    assert verify_export(exported.uri, digest=exported.digest) == exported.manifest
    restore_checkpoint(exported.uri, tmp_path / "back", digest=exported.digest)
    expected = files_of(folder)
    del expected["training_args.bin"]
    assert files_of(tmp_path / "back") == expected


def test_a_second_export_writes_nothing_and_reads_no_file(
    s3_folder: str, output: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(5)
    first = export(output, s3_folder)
    for owner, names in (
        (ObjectStore, ("put", "create", "compare_and_swap")),
        (ObjectReader, ("get", "checksums", "read_range")),
    ):
        for name in names:
            monkeypatch.delattr(owner, name)
    second = export(output, s3_folder)
    assert (second.existed, second.manifest) == (True, first.manifest)


def test_a_damaged_file_is_found_and_repaired(
    s3: S3Server, s3_folder: str, output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    first = export(output, s3_folder)
    (damaged,) = (file for file in first.manifest.files if file.path == "adapter_config.json")
    key = f"{first.uri.removeprefix(f's3://{BUCKET}/')}/{damaged.key}"
    client = s3.client()
    content = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()[:-1] + b"!"
    client.put_object(Bucket=BUCKET, Key=key, Body=content, ChecksumAlgorithm="CRC64NVME", ChecksumCRC64NVME=crc64nvme(content))
    for quick in (False, True):
        with pytest.raises(CheckpointError, match=r"adapter_config\.json has a different SHA-256"):
            verify_export(first.uri, quick=quick)
    with pytest.raises((CheckpointError, StorageError), match=r"adapter_config\.json is corrupt"):
        restore_checkpoint(first.uri, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert export(output, s3_folder).existed
    assert verify_export(first.uri, digest=first.digest)


def crc64nvme(content: bytes) -> str:
    seen = Checksums()
    seen.update(content)
    return seen.crc64nvme


def fail_after(most: int, written: list[str], patch: pytest.MonkeyPatch) -> None:
    """Every write of a store is noted; from the n-th on they fail."""
    for name, position in (("put", 1), ("create", 0), ("compare_and_swap", 0)):
        real = getattr(S3Store, name)

        def write(self: S3Store, *args: Any, real: Any = real, position: int = position, **options: Any) -> Any:
            if len(written) >= most:
                raise Dead
            written.append(args[position])
            return real(self, *args, **options)

        patch.setattr(S3Store, name, write)


@pytest.mark.parametrize("number", [0, 3, WRITES - 2, WRITES - 1], ids=["nothing", "some files", "no manifest", "no pointer"])
def test_an_export_that_is_cut_off_goes_on_there(
    s3_folder: str, output: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_checkpoint(5, os.urandom(100_000), **{"optimizer.pt": torch_file(os.urandom(100_000))})
    written: list[str] = []
    with monkeypatch.context() as patch:
        fail_after(number, written, patch)
        with pytest.raises(Dead):
            export(output, s3_folder, options=ExportOptions(small_at_once=1))
    published = number == WRITES - 1
    if not published:
        with pytest.raises(NoCheckpoint, match=r"has no manifest\.json"):
            verify_export(f"{s3_folder}/checkpoint-5")
    with monkeypatch.context() as patch:
        again: list[str] = []
        fail_after(99, again, patch)
        if not published:
            patch.delattr(ObjectReader, "checksums")  # what is there is known without reading it again
        exported = export(output, s3_folder)
    assert set(written).isdisjoint(again)  # no key is written twice
    large = [key for key in written + again if key.endswith(("adapter_model.safetensors", "optimizer.pt"))]
    assert len(large) == 2  # and no file that is worth the question
    assert exported.existed == published
    assert verify_export(exported.uri, digest=exported.digest)
    assert latest(s3_folder)["manifest"] == exported.digest


@pytest.mark.slow
def test_an_export_that_is_killed_in_a_large_file_is_made_by_the_next_one(
    s3: S3Server, s3_folder: str, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5, LARGE)
    process = subprocess.run([sys.executable, "-c", DIES, str(output), s3_folder, "9000000"], check=False)
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(NoCheckpoint):
        verify_export(f"{s3_folder}/checkpoint-5")
    started = time.monotonic()
    exported = export(output, s3_folder)
    assert time.monotonic() - started < LEASE_SECONDS / 2  # the lock of a process that is known to be dead is not waited for
    assert verify_export(exported.uri, digest=exported.digest)
    assert not [name for name in names(s3, s3_folder) if name.endswith(".lock")]


def test_the_same_step_is_exported_by_many_at_once_and_published_by_one(
    s3: S3Server, s3_folder: str, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5, os.urandom(100_000))
    barrier = threading.Barrier(4)

    def run(_: int) -> ExportResult:
        barrier.wait()
        return export(output, s3_folder)

    with ThreadPoolExecutor(4) as pool:
        exports = list(pool.map(run, range(4)))
    assert sorted(each.existed for each in exports) == [False, True, True, True]
    assert len({each.digest for each in exports}) == 1
    assert verify_export(exports[0].uri, digest=exports[0].digest)
    assert not [name for name in names(s3, s3_folder) if name.endswith(".lock")]


def test_two_runs_racing_for_one_name_never_publish_a_mixture(
    s3_folder: str, tmp_path: Path, output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    others = tmp_path / "others"
    for step in (1, 2):
        write_checkpoint(step, b"ours" * 1000)
        shutil.copytree(output, others)
        write_checkpoint(step, b"them" * 1000)
        barrier = threading.Barrier(2)

        def run(folder: Path, barrier: threading.Barrier = barrier, step: int = step) -> str:
            barrier.wait()
            try:
                return export(folder, s3_folder, step=step).digest
            except CheckpointError:
                return ""

        with ThreadPoolExecutor(2) as pool:
            digests = sorted(pool.map(run, (output, others)))
        assert digests[0] == ""
        assert verify_export(f"{s3_folder}/checkpoint-{step}", digest=digests[1])
        shutil.rmtree(others)


def test_latest_is_the_one_that_was_published_last(s3_folder: str, output: Path, write_checkpoint: Callable[..., Path]) -> None:
    steps = [5, 10, 15]
    for step in steps:
        write_checkpoint(step)
    with ThreadPoolExecutor(len(steps)) as pool:
        exports = list(pool.map(lambda step: export(output, s3_folder, step=step), steps))
    last = max(exports, key=lambda each: each.manifest.created)
    assert latest(s3_folder)["manifest"] == last.digest
    export(output, s3_folder, step=5)  # exists already
    assert latest(s3_folder)["manifest"] == last.digest
    open_store(s3_folder).replace("latest.json", b"nonsense")
    export(output, s3_folder, step=10)
    assert latest(s3_folder)["step"] == 10


@pytest.mark.slow
def test_store_problems_are_reported_before_any_upload(
    s3: S3Server, s3_folder: str, output: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(5)
    with pytest.raises(NoBucket, match="the bucket 'no-such-bucket' does not exist"):
        export(output, "s3://no-such-bucket/x")
    with pytest.raises(NoBucket):
        verify_export("s3://no-such-bucket/x/checkpoint-5")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(NoAccess, match="the secret key is wrong"):
            export(output, s3_folder)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        with pytest.raises(Unreachable, match="cannot be reached"):
            export(output, s3_folder)
    assert names(s3, s3_folder) == []
