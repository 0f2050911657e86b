"""S3 servers with other habits: one checks no upload, one honours no condition either. What is published is confirmed all the same."""

import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from servers.faulty_store import FaultyStore, faulty_store, once
from support.client_environments import Unavailable, client_environment
from support.ports import free_port
from support.waiting import eventually

from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.publish import ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.storage import open_store
from trainwright.storage.store import Capabilities

pytestmark = pytest.mark.medium

LARGE = os.urandom(14 * 1024 * 1024)
_KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class _Careless(BaseHTTPRequestHandler):
    """A store that keeps objects and ignores conditions, checksums and unknown headers, as some do."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        self.objects[self._key()] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            keys = sorted(key for key in self.objects if key.startswith("bucket/" + query.get("prefix", [""])[0]))
            contents = "".join(
                f"<Contents><Key>{key.removeprefix('bucket/')}</Key><Size>{len(self.objects[key])}</Size>"
                f'<LastModified>2026-11-23T05:00:00.000Z</LastModified><ETag>"x"</ETag></Contents>'
                for key in keys
            )
            return self._answer(200, f"<ListBucketResult>{contents}</ListBucketResult>".encode())
        content = self.objects.get(self._key())
        self._answer(404 if content is None else 200, content or b"")

    def do_DELETE(self) -> None:
        self.objects.pop(self._key(), None)
        self._answer(204)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response_only(status)
        self.send_header("ETag", '"same"')
        self.send_header("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The address of moto's server, which refuses no wrong checksum and reports wrong ones of uploads in parts."""
    try:
        python = client_environment("moto", ["moto[server]==5.2.5"])
    except Unavailable as error:
        pytest.skip(str(error))
    port = free_port()
    command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            eventually(lambda: _answers(port), 60.0, "moto's server")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(params=["careless", pytest.param("moto", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[str, FaultyStore]]:
    """A URI in a bucket of the server, and the proxy in front of it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**_KEYS, "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    if request.param == "moto":
        import boto3

        address = request.getfixturevalue("moto")
        bucket = f"b{os.urandom(6).hex()}"
        boto3.client("s3", endpoint_url=address).create_bucket(Bucket=bucket)
        with faulty_store(address) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
            yield f"s3://{bucket}/exports", proxy
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Careless,), {"objects": {}}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    with faulty_store(f"http://127.0.0.1:{server.server_port}") as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield "s3://bucket/exports", proxy
    server.shutdown()
    server.server_close()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def export(output: Path, uri: str) -> ExportResult:
    return export_checkpoint(output, uri, source="run")


def test_export_reports_missing_store_capabilities(
    store: tuple[str, FaultyStore], output: Path, write_checkpoint: Callable[..., Path], request: pytest.FixtureRequest
) -> None:
    uri, _ = store
    write_checkpoint(5)
    exported = export(output, uri)
    is_moto = "moto" in request.node.name
    assert exported.capabilities == Capabilities(conditional_writes=is_moto, checks_uploads=False)
    assert exported.manifest.confirmed == "read-back"
    assert open_store(uri).capabilities() == exported.capabilities


@pytest.mark.parametrize("name", ["optimizer.pt", "adapter_model.safetensors"])
def test_a_byte_that_is_flipped_on_its_way_is_found_by_reading_back(
    store: tuple[str, FaultyStore], output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path], name: str
) -> None:
    uri, proxy = store
    write_checkpoint(5, os.urandom(100_000))
    proxy.choose = once("flip-request", "PUT", name)
    exported = export(output, uri)
    assert proxy.count("flip-request") == 1
    assert verify_export(exported.uri, digest=exported.digest)
    again = export(output, uri)
    assert (again.existed, again.digest) == (True, exported.digest)
    restore_checkpoint(exported.uri, tmp_path / "back", digest=exported.digest)


def test_a_store_that_always_damages_a_file_publishes_nothing(
    store: tuple[str, FaultyStore], output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    uri, proxy = store
    write_checkpoint(5)
    proxy.choose = once("flip-request", "PUT", "optimizer.pt", times=1000)
    with pytest.raises(CheckpointError, match=r"returns other data than was sent for optimizer\.pt; not published"):
        export(output, uri)
    proxy.choose = lambda _method, _path: ""
    assert read_catalog(open_store(uri)).exports == ()
    assert verify_export(export(output, uri).uri)


def test_a_large_file_is_confirmed_whatever_checksum_the_store_reports(
    store: tuple[str, FaultyStore], output: Path, write_checkpoint: Callable[..., Path], request: pytest.FixtureRequest
) -> None:
    if "careless" in request.node.name:
        pytest.skip("the small server of these tests takes no uploads in parts")
    uri, _ = store
    write_checkpoint(5, LARGE)
    first = export(output, uri)
    state: dict[str, Any] = {"global_step": 10, "log_history": []}
    write_checkpoint(10, LARGE, **{"trainer_state.json": json.dumps(state).encode()})
    second = export_checkpoint(output, uri, source="run", step=10)
    assert any(file.key.startswith("../checkpoint-5/") for file in second.manifest.files if file.size > len(LARGE))
    for each in (first, second):
        assert verify_export(each.uri, digest=each.digest)
        assert verify_export(each.uri, quick=True)
    assert export_checkpoint(output, uri, source="run", step=5).existed
