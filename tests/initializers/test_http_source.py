"""http(s):// as a source: one file, identified by its digest or what the server says of it, and no signature in what is kept."""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from servers.hub_server import Fault, FileServer

from trainwright.backoff import Backoff
from trainwright.initializers import DatasetOptions, InitializerError, Receipt, http_file, initialize_dataset, initialize_model
from trainwright.initializers.rows import read_rows
from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.http.client import HttpClient, RetryPolicy, Untrusted

pytestmark = pytest.mark.medium


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, lines: bytes) -> Iterator[FileServer]:
    policy = RetryPolicy(first_contact=0.2, without_progress=0.2, backoff=Backoff(0.02, 0.1))
    monkeypatch.setattr(http_file, "RESOLVE_POLICY", policy)
    monkeypatch.setattr(http_file, "FETCH_POLICY", policy)
    started = FileServer()
    started.closes = True
    started.files = {"/data/rows.jsonl": lines}
    yield started
    started.stop()


def prepare(uri: str, target: Path) -> Receipt:
    return initialize_dataset(uri, target, DatasetOptions(test_fraction=0))


def downloads(server: FileServer) -> int:
    return sum(headers.get("range") != "bytes=0-0" for headers in server.headers)


def test_a_file_is_prepared_once_while_its_etag_stays(server: FileServer, tmp_path: Path, rows: list[dict[str, str]]) -> None:
    uri = f"{server.url}/data/rows.jsonl"
    receipt = prepare(uri, tmp_path / "dataset")
    assert list(read_rows(tmp_path / "dataset" / "train.jsonl")) == rows
    assert receipt.source == uri
    assert downloads(server) == 1
    assert prepare(uri, tmp_path / "dataset") == receipt
    assert downloads(server) == 1
    server.files["/data/rows.jsonl"] *= 2
    assert prepare(uri, tmp_path / "dataset").details["train_rows"] == 200


def test_a_digest_is_checked_and_pins_the_file_without_a_request(server: FileServer, tmp_path: Path, lines: bytes) -> None:
    uri = f"{server.url}/data/rows.jsonl#sha256={hashlib.sha256(lines).hexdigest()}"
    receipt = prepare(uri, tmp_path / "dataset")
    assert (receipt.source, receipt.revision) == (uri, f"sha256:{hashlib.sha256(lines).hexdigest()}")
    server.headers.clear()
    assert prepare(uri, tmp_path / "dataset") == receipt
    assert server.headers == []
    with pytest.raises(InitializerError, match=r"rows\.jsonl#sha256=0{64}: the file has another SHA-256: it has changed, or"):
        prepare(f"{server.url}/data/rows.jsonl#sha256={'0' * 64}", tmp_path / "other")


def test_a_signature_is_sent_and_kept_nowhere(server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.signatures = {"canary"}
    receipt = prepare(f"{server.url}/data/rows.jsonl?signature=canary", tmp_path / "dataset")
    assert receipt.source == f"{server.url}/data/rows.jsonl"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"canary" in path.read_bytes()]
    server.signatures = {"canary2"}
    assert prepare(f"{server.url}/data/rows.jsonl?signature=canary2", tmp_path / "dataset") == receipt
    server.signatures = {"other"}
    with pytest.raises(StorageError, match="status 403") as caught:
        prepare(f"{server.url}/data/rows.jsonl?signature=canary", tmp_path / "dataset")
    server.files.clear()
    server.signatures = {"canary"}
    with pytest.raises(StorageError, match="status 404") as missing:
        prepare(f"{server.url}/data/rows.jsonl?signature=canary", tmp_path / "new")
    assert "canary" not in f"{caught.value}{missing.value}{caplog.text}"


def test_a_query_that_chooses_the_file_is_part_of_what_identifies_it(server: FileServer, tmp_path: Path) -> None:
    server.etags["/data/rows.jsonl"] = '"same"'
    first = prepare(f"{server.url}/data/rows.jsonl?part=1", tmp_path / "dataset")
    assert prepare(f"{server.url}/data/rows.jsonl?part=1&X-Amz-Date=2", tmp_path / "dataset") == first
    assert prepare(f"{server.url}/data/rows.jsonl?part=2", tmp_path / "dataset").revision != first.revision


def test_a_server_that_identifies_nothing_is_asked_every_time(server: FileServer, tmp_path: Path) -> None:
    server.etags["/data/rows.jsonl"] = ""
    first = prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset")
    assert prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset").revision != first.revision
    assert downloads(server) == 2


@pytest.mark.parametrize("chunked", [True, False])
def test_a_server_without_ranges_will_do(server: FileServer, tmp_path: Path, chunked: bool) -> None:
    server.ranges, server.chunked = False, chunked
    server.faults = lambda _path, count: Fault(cut_after=2000) if count == 3 else None
    assert prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset").details["train_rows"] == 100


def test_a_server_that_refuses_ranges_serves_the_whole_file(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = server.answer
    monkeypatch.setattr(server, "answer", lambda *asked: (416, {}, b"") if "range" in asked[2] else real(*asked))
    assert prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset").details["train_rows"] == 100


@pytest.mark.parametrize("length", ["9" * 5000, "-1"])
def test_a_malformed_length_is_an_error(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: str) -> None:
    monkeypatch.setattr(server, "answer", lambda *_: (200, {"Content-Length": length}, b"{}"))
    with pytest.raises(StorageError, match="the server does not say where the file ends"):
        prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset")


def test_an_empty_file_is_a_file(server: FileServer, tmp_path: Path) -> None:
    server.files["/e.jsonl"] = b""
    with pytest.raises(InitializerError, match="has no rows to train on"):
        prepare(f"{server.url}/e.jsonl", tmp_path / "dataset")


@pytest.mark.parametrize("name", ["a b", "ü#?%", "50%25", "x" * 200])
def test_a_name_with_any_character_is_that_of_the_file(server: FileServer, tmp_path: Path, name: str, lines: bytes) -> None:
    server.files[f"/{name}.jsonl"] = lines
    fetched = http_file.fetch_file(
        http_file.StorageUri.parse(f"{server.url}/{quote(name)}.jsonl"), None, tmp_path, lambda _total: lambda _count: None
    )
    assert fetched.paths == [Path(f"{name}.jsonl")]
    assert (tmp_path / f"{name}.jsonl").read_bytes() == lines


def test_prepared_file_is_reused_offline_unless_its_uri_has_a_query(server: FileServer, tmp_path: Path) -> None:
    receipt = prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset")
    server.stop()
    assert prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset") == receipt
    with pytest.raises(StorageError, match="cannot be reached"):
        prepare(f"{server.url}/data/rows.jsonl?part=2", tmp_path / "dataset")
    with pytest.raises(StorageError, match="cannot be reached"):
        prepare(f"{server.url}/data/rows.jsonl", tmp_path / "other")


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, InitializerError, "does not exist: the server answers with status 404"),
        (403, InitializerError, r"access denied \(status 403\)"),
        (500, StorageError, "the server answers with status 500; try again"),
    ],
)
def test_a_refusal_says_what_it_is(server: FileServer, tmp_path: Path, status: int, error: type, message: str) -> None:
    server.faults = lambda _path, _count: Fault(status=status)
    with pytest.raises(error, match=message):
        prepare(f"{server.url}/data/rows.jsonl", tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_a_model_is_no_single_file(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(InitializerError, match="an address is a single file, but a model is a folder"):
        initialize_model(f"{server.url}/model.safetensors", tmp_path / "model")
    assert server.headers == []


def test_plain_http_to_other_machines_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINWRIGHT_ALLOW_HTTP", raising=False)
    with pytest.raises(BadUri, match=r"plain http is refused, .* use https, or set TRAINWRIGHT_ALLOW_HTTP=true"):
        prepare("http://192.0.2.1/rows.jsonl", tmp_path / "dataset")


class TestTls:
    @pytest.fixture
    def secure(self, certificate: tuple[Path, ssl.SSLContext], lines: bytes) -> Iterator[FileServer]:
        started = FileServer(certificate[1])
        started.files = {"/rows.jsonl": lines}
        yield started
        started.stop()

    def test_a_certificate_must_be_trusted(
        self,
        secure: FileServer,
        server: FileServer,
        certificate: tuple[Path, ssl.SSLContext],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        with pytest.raises(Untrusted, match=r"the server's certificate is not trusted .* set SSL_CERT_FILE to the CA file"):
            prepare(f"{secure.url}/rows.jsonl", tmp_path / "dataset")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert prepare(f"{secure.url}/rows.jsonl", tmp_path / "dataset").details["train_rows"] == 100

    def test_a_redirect_to_plain_http_is_refused_even_on_loopback(
        self,
        secure: FileServer,
        server: FileServer,
        certificate: tuple[Path, ssl.SSLContext],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        monkeypatch.setattr(secure, "answer", lambda *_: (302, {"Location": f"{server.url}/data/rows.jsonl?x=canary"}, b""))
        with (
            HttpClient() as client,
            pytest.raises(StorageError, match="redirects from https to http, which is refused") as caught,
        ):
            client.read(f"{secure.url}/rows.jsonl", 1000)
        assert "canary" not in str(caught.value)
        assert server.headers == []
