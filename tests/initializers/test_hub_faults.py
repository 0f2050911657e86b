"""A hub that fails, lies or leads astray: its files are whole and verified in the end, or an error says what happened."""

from __future__ import annotations

import logging
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.hub_server import Fault, FileServer, HubServer
from support.waiting import eventually

from trainwright.backoff import Backoff
from trainwright.initializers import InitializerError
from trainwright.initializers import hub as hub_module
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.hub import fetch_repository, resolve_commit
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.http.client import RetryPolicy, Untrusted
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium
LARGE = random.Random(7).randbytes(640 * 1024)
URI = StorageUri.parse("hf://org/model")


@pytest.fixture
def commit(hub: HubServer) -> str:
    return hub.repository("models/org/model").push({"large.safetensors": LARGE, "config.json": b"{}"})


def fetch(target: Path, commit: str | None = None) -> list[int]:
    """Fetch all files. Returns the counts that the progress was given."""
    counts: list[int] = []
    fetch_repository(URI, FileFilter("model"), commit, target, lambda _total: counts.append)
    return counts


def only_large(fault: Fault, times: int = 1) -> object:
    return lambda path, count: fault if path.endswith(".safetensors") and count < times else None


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        (Fault(cut_after=300_000), len(LARGE)),
        (Fault(cut_after=0), len(LARGE)),
        (Fault(status=503), len(LARGE)),
        (Fault(status=429, headers={"Retry-After": "0"}), len(LARGE)),
    ],
    ids=["cut", "cut at once", "unavailable", "too many requests"],
)
def test_a_passing_fault_is_retried_and_nothing_is_sent_twice(
    hub: HubServer, commit: str, tmp_path: Path, fault: Fault, sent: int
) -> None:
    hub.faults = only_large(fault)  # type: ignore[assignment]
    counts = fetch(tmp_path / "x")
    assert (tmp_path / "x" / "large.safetensors").read_bytes() == LARGE
    assert sum(counts) == len(LARGE) + 2
    assert hub.sent[f"/org/model/resolve/{commit}/large.safetensors"] == sent
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["config.json", "large.safetensors"]


@pytest.mark.parametrize("what", ["/revision/", "/tree/"])
def test_a_busy_hub_is_asked_again_as_late_as_it_says_and_not_by_its_library(
    hub: HubServer, commit: str, tmp_path: Path, what: str
) -> None:
    fault = Fault(status=429, headers={"Retry-After": "1"})
    hub.faults = lambda path, count: fault if what in path and count == 0 else None
    began = time.monotonic()
    fetch(tmp_path / "x", commit if what == "/tree/" else None)
    assert time.monotonic() - began >= 1
    assert len([line for line in hub.asked if what in line]) == 2


def test_a_hub_that_is_away_is_an_error_after_the_budget_and_not_after_that_of_its_library(
    hub: HubServer, commit: str, tmp_path: Path
) -> None:
    hub.stop()
    began = time.monotonic()
    with pytest.raises(StorageError, match="hf://org/model: the hub cannot be reached: Connection refused"):
        fetch(tmp_path / "x", commit)
    assert time.monotonic() - began < 15  # the library retries for 23 seconds


def test_a_flipped_byte_costs_one_more_download(hub: HubServer, commit: str, tmp_path: Path) -> None:
    hub.served["large.safetensors"] = LARGE[:-1] + bytes([LARGE[-1] ^ 1])
    hub.faults = lambda path, count: hub.served.clear() if path.endswith(".safetensors") and count == 0 else None
    counts = fetch(tmp_path / "x")
    assert (tmp_path / "x" / "large.safetensors").read_bytes() == LARGE
    assert sum(counts) == len(LARGE) + 2


def test_a_corrupt_file_does_not_keep_the_others_from_arriving(hub: HubServer, commit: str, tmp_path: Path) -> None:
    hub.served["large.safetensors"] = LARGE[::-1]
    with pytest.raises(ChecksumMismatch, match=r"large\.safetensors is corrupt \(its digest differs .*\) and was removed"):
        fetch(tmp_path / "x")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["config.json"]


@pytest.mark.parametrize("served", [LARGE + b"more", LARGE[:-1]], ids=["longer", "shorter"])
def test_another_size_than_the_listed_one_is_an_error(hub: HubServer, commit: str, tmp_path: Path, served: bytes) -> None:
    hub.served["large.safetensors"] = served
    with pytest.raises(StorageError):
        fetch(tmp_path / "x")
    assert [path.name for path in (tmp_path / "x").iterdir() if not path.name.startswith(".")] == ["config.json"]


@pytest.fixture
def other(hub: HubServer) -> Iterator[FileServer]:
    server = FileServer()
    yield server
    server.stop()


def test_the_next_page_of_a_list_is_asked_of_the_hub_whose_token_goes_nowhere_else(
    hub: HubServer, commit: str, other: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCESS_TOKEN", "hf_secret")
    hub.page, real = 1, hub.answer

    def linked(method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        status, answer, body = real(method, target, headers)
        return status, {name: value.replace("https://huggingface.invalid", other.url) for name, value in answer.items()}, body

    monkeypatch.setattr(hub, "answer", linked)
    fetch(tmp_path / "x")
    assert other.asked == []
    assert {headers["authorization"] for headers in hub.headers} == {"Bearer hf_secret"}
    assert {headers["host"] for headers in hub.headers} == {hub.url.removeprefix("http://")}


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://192.0.2.1/x?signature=canary", InitializerError),
        ("http://me:canary@127.0.0.1/x", InitializerError),
        ("ftp://127.0.0.1/x?signature=canary", InitializerError),
        ("/org/model/resolve/main/large.safetensors?signature=canary", StorageError),
    ],
)
def test_a_redirect_that_leads_astray_is_refused(
    hub: HubServer, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, error: type[Exception]
) -> None:
    monkeypatch.delenv("TRAINWRIGHT_ALLOW_HTTP", raising=False)
    real = hub.answer

    def astray(method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return (302, {"Location": location}, b"") if ".safetensors" in target else real(method, target, headers)

    monkeypatch.setattr(hub, "answer", astray)
    with pytest.raises(error) as caught:
        fetch(tmp_path / "x")
    assert "canary" not in str(caught.value)


def test_an_error_behind_a_redirect_and_the_log_have_no_signature(
    hub: HubServer,
    commit: str,
    other: FileServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    hub.repository("models/org/model").redirects_to = f"{other.url}/canary"
    with pytest.raises(StorageError, match="hf://org/model: the server answers with status 404") as caught:
        fetch(tmp_path / "x")
    said = capfd.readouterr()
    assert "canary" not in f"{caught.value}{caplog.text}{said.out}{said.err}"


def test_an_error_ends_the_transfers_that_wait_for_their_server(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{number}.json": b"{}" for number in range(10)}
    hub.repository("models/org/model").push(files)
    release = threading.Event()

    def fault(path: str, _count: int) -> Fault | None:
        if "/resolve/" not in path:
            return None
        return Fault(status=410) if path.endswith("/3.json") else Fault(before=lambda: release.wait(20) and None)

    hub.faults = fault
    began = time.monotonic()
    with pytest.raises(StorageError, match="status 410"):
        fetch(tmp_path / "x")
    assert time.monotonic() - began < 5
    found = sorted(tmp_path.rglob("*.json"))
    release.set()
    eventually(lambda: sum(hub.sent.values()) >= 14, 10)  # what they receive now is written nowhere
    assert sorted(tmp_path.rglob("*.json")) == found


def test_a_server_that_sends_nothing_is_an_error_when_the_budget_is_spent(
    hub: HubServer, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    policy = RetryPolicy(first_contact=0.2, without_progress=1.0, backoff=Backoff(0.02, 0.1))
    monkeypatch.setattr(hub_module, "FETCH_POLICY", policy)
    hub.faults = lambda path, _count: Fault(before=lambda: release.wait(20) and None) if "/resolve/" in path else None
    with pytest.raises(StorageError, match="hf://org/model cannot be reached: nothing has arrived for"):
        fetch(tmp_path / "x")
    release.set()


def test_a_signal_ends_the_program_while_it_waits_for_the_hub(hub: HubServer, commit: str, tmp_path: Path) -> None:
    waits, release = threading.Event(), threading.Event()

    def hold() -> None:
        waits.set()
        release.wait(60)

    hub.faults = lambda path, _count: Fault(before=hold) if "/resolve/" in path else None
    command = [sys.executable, "-m", "trainwright.initializers", "model", "--target", str(tmp_path / "model")]
    process = subprocess.Popen(command, env={**os.environ, "STORAGE_URI": "hf://org/model"}, stderr=subprocess.DEVNULL)
    assert waits.wait(30)
    process.send_signal(signal.SIGTERM)
    assert process.wait(5) == -signal.SIGTERM
    release.set()


def test_the_certificate_of_a_hub_must_be_trusted_and_no_redirect_leaves_tls(
    hub: HubServer, certificate: tuple[Path, ssl.SSLContext], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = HubServer(certificate[1])
    secure.repository("models/org/model").push({"config.json": b"{}", "large.safetensors": LARGE})
    monkeypatch.setenv("HF_ENDPOINT", secure.url)
    with pytest.raises(Untrusted, match=r"the server's certificate is not trusted .* set SSL_CERT_FILE to the CA file"):
        fetch(tmp_path / "x")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    fetch(tmp_path / "x")
    for part in ("/large.safetensors", "/tree/"):
        monkeypatch.setattr(secure, "answer", _redirecting(secure, part, f"{hub.url}/x?signature=canary"))
        with pytest.raises(StorageError, match="redirects from https to http, which is refused") as caught:
            fetch(tmp_path / f"y{part.strip('/')}")
        assert "canary" not in str(caught.value)
    assert hub.asked == []
    secure.stop()


def test_a_hub_is_reached_through_the_proxy_of_the_environment(
    hub: HubServer, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example.invalid")
    monkeypatch.setenv("HTTP_PROXY", hub.url)
    monkeypatch.setenv("TRAINWRIGHT_ALLOW_HTTP", "1")
    fetch(tmp_path / "x")
    assert {headers["host"] for headers in hub.headers} == {"hub.example.invalid"}
    assert len(hub.headers) == 4  # the commit, the list, and two files


@pytest.mark.parametrize("proxy", ["ftp://me:canary@proxy:1", "http://me:can\nary@proxy:1"])
def test_an_unusable_proxy_is_an_error_without_its_password(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(StorageError, match="a proxy of the environment is not supported; expected http://host:port"):
        fetch(tmp_path / "x", "0" * 40)


def _redirecting(server: HubServer, part: str, location: str) -> object:
    real = HubServer.answer

    def answer(method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        return (302, {"Location": location}, b"") if part in target else real(server, method, target, headers)

    return answer


def test_without_the_library_of_the_hub_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InitializerError, match=r"hf://org/model needs the client of the hub: pip install 'trainwright\[hub\]'"):
        fetch(tmp_path / "x")


def test_offline_without_the_library_of_the_hub_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert resolve_commit(StorageUri.parse("hf://org/model"), "model") is None, "what is there may be reused"
    assert "trainwright[hub]" in caplog.text
    with pytest.raises(InitializerError, match=r"hf://org/model needs the client of the hub: pip install 'trainwright\[hub\]'"):
        fetch(tmp_path / "x")
