"""A bucket behaves as a store: what is put comes back, one of many creators wins, and every refusal is one line."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from servers.s3_server import BUCKET, S3Server
from support.ports import free_port
from support.waiting import eventually

from trainwright.storage import open_store
from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import AlreadyExists, LockLost, NoAccess, NoBucket, NotFound, StorageError, Unreachable
from trainwright.storage.objects.lease import hold_lease, identity
from trainwright.storage.objects.object_store import LeaseFile
from trainwright.storage.objects.s3_store import S3Store
from trainwright.storage.objects.upload import PART
from trainwright.storage.plain_files import no_progress
from trainwright.storage.store import Capabilities, FolderNames, Lock, StoredFile
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium
NAMES = ["plain.txt", "nested/ü/é 漢字.txt", "a%20b%2Fc", "a+b&c=d?e#f", "[x]*{y}~^`'\"<>|", "sp ace ", ".hidden", "x" * 200]


@pytest.fixture
def store(s3_folder: str) -> S3Store:
    opened = open_store(s3_folder)
    assert isinstance(opened, S3Store)
    return opened


def stored(content: bytes) -> StoredFile:
    seen = Checksums()
    seen.update(content)
    return StoredFile(len(content), hashlib.sha256(content).hexdigest(), seen.crc64nvme)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_comes_back(store: S3Store, s3: S3Server, tmp_path: Path, name: str) -> None:
    content = os.urandom(1000)
    (tmp_path / "source").write_bytes(content)
    assert store.put(tmp_path / "source", name) == stored(content)
    assert store.head(name) == StoredFile(1000)
    assert store.inspect(name) == StoredFile(1000, crc64nvme=stored(content).crc64nvme)
    assert store.checksums(name) == stored(content)
    assert store.read_range(name, 10, 5) == content[10:15]
    assert store.read_range(name, 990, 50) == content[990:]
    assert list(store.list_files()) == [(name, 1000)]
    assert store.read(name) == content
    assert store.get(name, tmp_path / "back") == stored(content)
    assert (tmp_path / "back").read_bytes() == content
    listed = s3.client().list_objects_v2(Bucket=BUCKET, Prefix=store.uri.key)["Contents"]
    assert [each["Key"] for each in listed] == [f"{store.uri.key}/{name}"]
    store.delete(name)
    store.delete(name)
    assert store.head(name) is None


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 5 * PART // 2])
def test_a_file_of_any_size_comes_back(store: S3Store, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "source").write_bytes(content)
    counted: list[int] = []
    assert store.put(tmp_path / "source", "file", counted.append) == stored(content)
    assert sum(counted) == size
    assert store.inspect("file") == StoredFile(size, crc64nvme=stored(content).crc64nvme)
    counted.clear()
    assert store.get("file", tmp_path / "new" / "back", counted.append) == stored(content)
    assert sum(counted) == size
    assert (tmp_path / "new" / "back").read_bytes() == content


def test_an_upload_that_is_stopped_leaves_no_file_and_no_parts(store: S3Store, s3: S3Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(20 * PART))

    def on_progress(_count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(BaseException):  # noqa: B017, PT011
        store.put(source, "file", on_progress)
    assert store.head("file") is None
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET, Prefix=store.uri.key).get("Uploads")


def test_a_folder_lists_the_names_directly_in_it(store: S3Store) -> None:
    for key in ("file", "sub/a", "sub/deep/b", "x y/é"):
        store.replace(key, b"abc")
    assert store.list_folder(10) == FolderNames(("sub", "x y"), {"file": 3})
    assert store.below("sub").list_folder(10) == FolderNames(("deep",), {"a": 3})
    assert store.list_folder(1) == FolderNames((), {"file": 3}, is_cut=True)
    assert store.below("none").list_folder(10) == FolderNames((), {})


def test_capabilities_are_detected_once_and_leave_nothing(store: S3Store) -> None:
    assert store.capabilities() == Capabilities(conditional_writes=True, checks_uploads=True)
    assert store.below("x").capabilities() is store.capabilities()
    assert list(store.list_files()) == []


def test_an_object_that_was_stored_without_a_checksum_has_none(store: S3Store, s3: S3Server) -> None:
    s3.client().put_object(Bucket=BUCKET, Key=f"{store.uri.key}/file", Body=b"content", ChecksumAlgorithm="SHA256")
    assert store.inspect("file") == StoredFile(7)
    assert store.checksums("file") == stored(b"content")


def test_one_of_many_creators_wins_and_one_of_many_swappers(store: S3Store) -> None:
    barrier = threading.Barrier(8)

    def create(number: int) -> int:
        barrier.wait()
        try:
            store.create("one", b"%d" % number)
        except AlreadyExists:
            return 0
        return 1

    def swap(number: int) -> bool:
        barrier.wait()
        return store.compare_and_swap("one", before, b"new %d" % number)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(8))) == 1
        before = store.read("one")
        assert sum(pool.map(swap, range(8))) == 1
    assert store.read("one").startswith(b"new ")


def test_a_swap_needs_what_it_names(store: S3Store) -> None:
    assert not store.compare_and_swap("file", b"old", b"new")
    assert store.compare_and_swap("file", None, b"first")
    assert not store.compare_and_swap("file", None, b"new")
    assert not store.compare_and_swap("file", b"old", b"new")
    assert store.compare_and_swap("file", b"first", b"second")
    store.replace("file", b"third")
    assert store.read("file") == b"third"


def test_one_at_a_time_is_inside(store: S3Store, s3: S3Server) -> None:
    inside: list[int] = []

    def enter(number: int) -> int:
        with S3Store(store.uri).lock("x"):
            inside.append(number)
            time.sleep(0.05)
            most = len(inside)
            inside.remove(number)
        return most

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(enter, range(4))) == {1}
    assert "Contents" not in s3.client().list_objects_v2(Bucket=BUCKET, Prefix=store.uri.key + "/")


def test_a_lock_whose_holder_was_killed_is_taken_over_and_one_that_is_renewed_is_not(store: S3Store) -> None:
    holding = S3Store(store.uri, lease_seconds=2.0)
    with holding.lock("x"):
        lock = eventually(lambda: _names(store))[0]
        waiter = threading.Thread(target=lambda: S3Store(store.uri, lease_seconds=2.0).lock("x").__enter__(), daemon=True)
        waiter.start()
        waiter.join(4.0)
        assert waiter.is_alive()
    waiter.join(10.0)
    assert not waiter.is_alive()
    store.replace(lock, b"somebody elsewhere who died")
    started = time.monotonic()
    with S3Store(store.uri, lease_seconds=1.0).lock("x"):
        assert time.monotonic() - started >= 1.0


def test_unfinished_uploads_of_a_killed_exporter_are_aborted(store: S3Store, s3: S3Server) -> None:
    client, folder = s3.client(), store.uri.key
    for key in (f"{folder}/checkpoint-5/model.safetensors", f"{folder}-more/model.safetensors"):
        upload = client.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        client.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 1024)
    with store.lock("exports"):
        name = next(name for name in _names(store) if name.endswith(".lock"))
    store.replace(name, b"of a process that was killed")
    with S3Store(store.uri, lease_seconds=0.5).lock("exports"):
        left = client.list_multipart_uploads(Bucket=BUCKET, Prefix=folder)["Uploads"]
    assert [upload["Key"] for upload in left] == [f"{folder}-more/model.safetensors"]


def test_the_lock_of_a_process_that_has_ended_is_not_waited_for(store: S3Store) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "from trainwright.storage.objects.lease import identity; print(identity())"],
        check=True,
        capture_output=True,
    )
    with store.lock("x"):
        name = _names(store)[0]
    started = time.monotonic()
    store.replace(name, b"name 1 " + dead.stdout)
    with store.lock("x"):
        assert time.monotonic() - started < 10
    store.replace(name, f"name 1 {identity()}".encode())  # of a living one
    with pytest.raises(StorageError, match="has held this lock for 1 s"), hold_lease(LeaseFile(store, name), "x", timeout=1):
        pytest.fail("two hold it")


def test_whoever_lost_the_lock_hears_of_it(store: S3Store) -> None:
    with pytest.raises(StorageError, match="the lock was lost"), S3Store(store.uri, lease_seconds=0.4).lock("x") as lock:  # noqa: PT012
        lock.require()
        store.replace(_names(store)[0], b"another")
        eventually(lambda: _is_lost(lock))
    assert store.read(_names(store)[0]) == b"another"  # it is theirs now


@pytest.mark.parametrize("key", ["../x", "a/../../x", "", "a//b", "/a", "a/", ".", "a/./b", "a\nb", "a\0b"])
def test_a_key_that_leads_elsewhere_is_refused(store: S3Store, tmp_path: Path, key: str) -> None:
    (tmp_path / "source").write_bytes(b"")
    for use in (lambda: store.put(tmp_path / "source", key), lambda: store.read(key), lambda: store.create(key, b"")):
        with pytest.raises(StorageError, match=r"is outside of|is not a valid key"):
            use()


def test_missing_objects_are_named(store: S3Store, tmp_path: Path) -> None:
    assert store.head("none") is None
    for use in (lambda: store.read("none"), lambda: store.checksums("none"), lambda: store.get("none", tmp_path / "x")):
        with pytest.raises(NotFound, match=f"^{store.uri}/none does not exist$"):
            use()
    with pytest.raises(StorageError, match="No such file"):
        store.put(tmp_path / "none", "x")


@pytest.mark.parametrize(
    ("name", "value", "uri", "error", "message"),
    [
        ("AWS_SECRET_ACCESS_KEY", "a wrong secret", "s3://trainwright/x", NoAccess, "access denied: the secret key is wrong"),
        ("AWS_ACCESS_KEY_ID", "nobody", "s3://trainwright/x", NoAccess, "access denied: the access key does not exist"),
        ("AWS_REGION", "us-east-1", "s3://no-such-bucket/x", NoBucket, "the bucket 'no-such-bucket' does not exist"),
    ],
)
def test_a_refusal_is_one_line_without_secrets(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, uri: str, error: type, message: str
) -> None:
    monkeypatch.setenv(name, value)
    (tmp_path / "source").write_bytes(b"x")
    store = open_store(uri)
    for use in (
        lambda: store.put(tmp_path / "source", "a"),
        lambda: store.read("a"),
        lambda: store.get("a", tmp_path / "back"),
        lambda: store.replace("a", b""),
        lambda: store.lock("a").__enter__(),
    ):
        with pytest.raises(error) as caught:
            use()
        text = str(caught.value)
        assert message in text
        assert text.startswith("s3://")
        assert "\n" not in text
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in text


def test_an_address_where_nobody_answers_is_named_as_such(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unreachable, match=r"^s3://trainwright/x/a: the store cannot be reached; check AWS_ENDPOINT_URL"):
        open_store("s3://trainwright/x").read("a")


class _Weak(BaseHTTPRequestHandler):
    """A store that keeps objects and ignores every precondition, as some do."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"", self.objects[self.path])

    def do_GET(self) -> None:
        content = self.objects.get(self.path)
        self._answer(404 if content is None else 200, content or b"", content or b"")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self._answer(204, b"", b"")

    def _answer(self, status: int, body: bytes, tagged: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", f'"{hashlib.md5(tagged).hexdigest()}"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def weak(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Weak,), {"objects": {}}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    yield S3Store(StorageUri.parse("s3://bucket/x"))
    server.shutdown()
    server.server_close()


def test_a_store_that_ignores_preconditions_is_found_out(weak: S3Store, caplog: pytest.LogCaptureFixture) -> None:
    with weak.lock("a"):
        weak.create("a", b"1")
    assert "this store ignores If-None-Match" in caplog.text
    with pytest.raises(AlreadyExists):
        weak.create("a", b"2")
    assert weak.read("a") == b"1"


def _is_lost(lock: Lock) -> bool:
    try:
        lock.require()
    except LockLost:
        return True
    return False


def _names(store: S3Store) -> list[str]:
    return [each.name for each in S3Store(store.uri).list_objects()]


def test_progress_need_not_be_told(store: S3Store, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x")
    assert store.put(tmp_path / "source", "a", no_progress) == stored(b"x")
