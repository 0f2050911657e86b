"""A file that is downloaded from a faulty server: whole and verified under its name, or an error that says what happened."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.hub_server import Fault, FileServer

from trainwright.backoff import Backoff
from trainwright.storage.errors import BadUri, ChecksumMismatch, NoSpace, StorageError, Unreachable
from trainwright.storage.http import download as download_module
from trainwright.storage.http.client import HttpClient, HttpError, RemoteChanged, Retries, RetryPolicy, Timeouts
from trainwright.storage.http.download import ContentDigest, PartialFile, RemoteFile, download, partial_path

pytestmark = pytest.mark.medium

KIB = 1024
SMALL = b"small\n" * 100
LARGE = random.Random(7).randbytes(640 * KIB)
PATH = "/large.bin"


@pytest.fixture(autouse=True)
def synced_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "SYNCED", 64 * KIB)


@pytest.fixture
def server() -> Iterator[FileServer]:
    started = FileServer()
    started.files = {PATH: LARGE, "/small.txt": SMALL, "/empty": b""}
    yield started
    started.stop()


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def retries(clock: Clock | None = None, first_pause: float = 0.5, longest_pause: float = 30.0, **policy: float) -> Retries:
    clock, backoff = clock or Clock(), Backoff(first_pause, longest_pause, jitter=0.0)
    return Retries(RetryPolicy(**policy, backoff=backoff), clock=clock, sleep=clock.sleep)


def remote(server: FileServer, path: str = PATH, **changes: object) -> RemoteFile:
    content = server.files[path]
    known = {"size": len(content), "digest": ContentDigest("sha256", hashlib.sha256(content).hexdigest())}
    return RemoteFile(path.strip("/"), server.url + path, **{**known, **changes})  # type: ignore[arg-type]


def fetch(
    server: FileServer, target: Path, file: RemoteFile | None = None, *, budget: Retries | None = None, token: str = ""
) -> list[int]:
    """Download one file. Returns the counts that the progress was given."""
    counts: list[int] = []
    with HttpClient(timeouts=Timeouts(connect=2, read=2), token=token, token_for=server.url if token else "") as client:
        download(client, file or remote(server), target, budget or retries(), counts.append)
    return counts


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("path", [PATH, "/small.txt", "/empty"])
def test_a_file_arrives_with_its_contents_and_nothing_beside_it(server: FileServer, tmp_path: Path, path: str) -> None:
    target = tmp_path / "sub" / "file"
    counts = fetch(server, target, remote(server, path))
    assert target.read_bytes() == server.files[path]
    assert sum(counts) == len(server.files[path])
    assert left(tmp_path / "sub") == ["file"]


FAULTS: dict[str, Fault] = {
    "cut": Fault(cut_after=20_000),
    "cut at once": Fault(cut_after=0),
    "too many requests": Fault(status=429, headers={"Retry-After": "3"}),
    "unavailable": Fault(status=503),
    "bad gateway": Fault(status=502),
    "timeout of a gateway": Fault(status=504),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("path", [PATH, "/small.txt"])
def test_a_passing_fault_is_retried(server: FileServer, tmp_path: Path, fault: Fault, path: str) -> None:
    if fault.cut_after and path == "/small.txt":
        fault = Fault(cut_after=100)
    server.faults = lambda _path, count: fault if count in (0, 1, 3) else None
    counts = fetch(server, tmp_path / "file", remote(server, path))
    assert (tmp_path / "file").read_bytes() == server.files[path]
    assert sum(counts) == len(server.files[path])
    assert left(tmp_path) == ["file"]


def test_a_cut_download_goes_on_where_it_was_cut(server: FileServer, tmp_path: Path) -> None:
    server.faults = lambda _path, count: Fault(cut_after=100_000) if count < 5 else None
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == LARGE
    assert server.sent[PATH] == len(LARGE)
    assert [headers.get("range") for headers in server.headers] == [None, *(f"bytes={n}00000-" for n in range(1, 6))]


def test_a_pause_is_as_long_as_the_server_asks(server: FileServer, tmp_path: Path) -> None:
    server.faults = lambda _path, count: Fault(status=429, headers={"Retry-After": "7"}) if count == 0 else None
    clock = Clock()
    fetch(server, tmp_path / "file", remote(server, "/small.txt"), budget=retries(clock))
    assert clock.slept == [7.0]


def test_a_pause_beyond_the_budget_is_the_error_at_once(server: FileServer, tmp_path: Path) -> None:
    server.faults = lambda _path, _count: Fault(status=503, headers={"Retry-After": "3600"})
    clock = Clock()
    with pytest.raises(HttpError, match="status 503"):
        fetch(server, tmp_path / "file", budget=retries(clock))
    assert clock.slept == []


def test_the_budget_is_short_before_the_first_answer_and_long_after_it(server: FileServer, tmp_path: Path) -> None:
    file = remote(server)
    server.faults = lambda _path, _count: Fault(status=503)
    answered = Clock()
    with pytest.raises(HttpError):
        fetch(server, tmp_path / "file", remote(server, "/small.txt"), budget=retries(answered))
    server.stop()
    silent = Clock()
    with pytest.raises(Unreachable, match="cannot be reached"):
        fetch(server, tmp_path / "file", file, budget=retries(silent))
    assert silent.now <= 4 * 30
    assert 500 < answered.now <= 600
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 416, 501])
@pytest.mark.parametrize("path", [PATH, "/small.txt"])
def test_a_refusal_is_not_retried(server: FileServer, tmp_path: Path, status: int, path: str) -> None:
    server.faults = lambda _path, _count: Fault(status=status)
    with pytest.raises(HttpError, match=f"status {status}") as caught:
        fetch(server, tmp_path / "file", remote(server, path))
    assert caught.value.status == status
    assert len(server.asked) == 1
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("path", [PATH, "/small.txt"])
def test_a_flipped_byte_costs_one_more_download(
    server: FileServer, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, real = server.files[path], server.answer
    file = remote(server, path)
    server.files[path] = good[:-1] + bytes([good[-1] ^ 1])

    def repaired(method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if server.sent.get(path, 0) >= len(good):
            server.files[path] = good
        return real(method, target, headers)

    monkeypatch.setattr(server, "answer", repaired)
    counts = fetch(server, tmp_path / "file", file)
    assert (tmp_path / "file").read_bytes() == good
    assert sum(counts) == len(good)
    assert server.sent[path] == 2 * len(good)


@pytest.mark.parametrize("path", [PATH, "/small.txt"])
def test_a_byte_flipped_twice_is_an_error_and_the_file_is_gone(server: FileServer, tmp_path: Path, path: str) -> None:
    file = remote(server, path)
    server.files[path] = bytes([server.files[path][0] ^ 1]) + server.files[path][1:]
    with pytest.raises(ChecksumMismatch, match=r"is corrupt \(its digest differs .*\) and was removed; try again"):
        fetch(server, tmp_path / "file", file)
    assert server.sent[path] == 2 * len(server.files[path])
    assert left(tmp_path) == []


def test_a_server_without_ranges_is_read_in_one_stream_and_again_after_a_cut(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.faults = lambda _path, count: Fault(cut_after=300_000) if count < 2 else None
    counts = fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == LARGE
    assert sum(counts) == len(LARGE)
    assert left(tmp_path) == ["file"]


def test_a_server_without_ranges_that_always_cuts_is_an_error_in_the_end(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.faults = lambda _path, _count: Fault(cut_after=300_000)
    clock = Clock()
    with pytest.raises(Unreachable, match="300000 bytes read"):
        fetch(server, tmp_path / "file", budget=retries(clock))
    assert 500 < clock.now <= 700


@pytest.mark.parametrize("cut", [False, True])
def test_a_chunked_answer_of_unknown_size_is_taken_when_its_end_is_seen(server: FileServer, tmp_path: Path, cut: bool) -> None:
    server.chunked, server.ranges = True, False
    server.faults = lambda _path, count: Fault(cut_after=100_000) if cut and count == 0 else None
    fetch(server, tmp_path / "file", remote(server, size=None, digest=None))
    assert (tmp_path / "file").read_bytes() == LARGE


def etag(server: FileServer, path: str = PATH) -> str:
    return f'etag:"{hashlib.sha256(server.files[path]).hexdigest()}"'


def test_a_file_that_is_replaced_midway_is_an_error_and_the_next_attempt_starts_over(server: FileServer, tmp_path: Path) -> None:
    file = remote(server, digest=None, validator=etag(server))
    other = LARGE[::-1]

    def replaced(_path: str, count: int) -> Fault | None:
        server.files[PATH] = other
        return Fault(cut_after=300_000) if count == 0 else None

    server.faults = replaced
    with pytest.raises(RemoteChanged, match="was replaced during the download; try again"):
        fetch(server, tmp_path / "file", file)
    assert left(tmp_path) == []
    fetch(server, tmp_path / "file", remote(server, digest=None, validator=etag(server)))
    assert (tmp_path / "file").read_bytes() == other


def test_another_size_than_the_listed_one_is_an_error(server: FileServer, tmp_path: Path) -> None:
    for path in (PATH, "/small.txt"):
        file = remote(server, path)
        server.files[path] += b"more"
        with pytest.raises(RemoteChanged, match=f"has {len(server.files[path])} bytes instead of {file.size}"):
            fetch(server, tmp_path / "file", file)
        assert left(tmp_path) == []


ARRIVED = 350_000
"""Bytes of the large file that have arrived when it is interrupted."""


def interrupt(server: FileServer, target: Path, file: RemoteFile) -> None:
    """Leave a partial file, as a killed process does."""
    server.faults = lambda _path, count: Fault(status=404) if count else Fault(cut_after=ARRIVED)
    with pytest.raises(HttpError):
        fetch(server, target, file)
    server.faults = lambda _path, _count: None
    server.sent.clear()


@pytest.mark.parametrize("verified", [True, False], ids=["digest", "etag"])
def test_an_interrupted_download_is_resumed(server: FileServer, tmp_path: Path, verified: bool) -> None:
    file = remote(server) if verified else remote(server, digest=None, validator=etag(server))
    interrupt(server, tmp_path / "file", file)
    assert not (tmp_path / "file").exists()
    counts = fetch(server, tmp_path / "file", file)
    assert (tmp_path / "file").read_bytes() == LARGE
    # Without a digest, what may not have been synced is fetched again.
    assert server.sent[PATH] == len(LARGE) - (ARRIVED if verified else ARRIVED - ARRIVED % (64 * KIB))
    assert sum(counts) == len(LARGE)
    assert left(tmp_path) == ["file"]


def test_a_file_that_nothing_identifies_starts_over(server: FileServer, tmp_path: Path) -> None:
    file = remote(server, digest=None)
    interrupt(server, tmp_path / "file", file)
    fetch(server, tmp_path / "file", file)
    assert (tmp_path / "file").read_bytes() == LARGE
    assert server.sent[PATH] == len(LARGE)


def test_leftovers_of_other_contents_are_not_used(server: FileServer, tmp_path: Path) -> None:
    interrupt(server, tmp_path / "file", remote(server))
    server.files[PATH] = LARGE[::-1]
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == LARGE[::-1]
    assert server.sent[PATH] == len(LARGE)


@pytest.mark.parametrize("size", [ARRIVED, len(LARGE), len(LARGE) + 1])
def test_a_partial_file_that_lost_its_data_in_a_power_failure_is_noticed(server: FileServer, tmp_path: Path, size: int) -> None:
    file = remote(server)
    partial_path(tmp_path / "file", file.identity).write_bytes(bytes(size))
    fetch(server, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == LARGE


def test_nothing_is_written_through_a_link(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    file = remote(server)
    partial_path(tmp_path / "file", file.identity).symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match="is a link; remove it"):
        fetch(server, tmp_path / "file", file)
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_full_disk_says_so_and_keeps_what_has_arrived(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        if offset + len(data) > ARRIVED:
            raise OSError(28, "No space left on device")
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    server.faults = lambda _path, _count: Fault(during=lambda _sent: None)  # in pieces
    with pytest.raises(NoSpace, match="the disk is full"):
        fetch(server, tmp_path / "file")
    monkeypatch.undo()
    assert not (tmp_path / "file").exists()
    server.sent.clear()
    fetch(server, tmp_path / "file")
    assert 0 < server.sent[PATH] < len(LARGE)


class TestRedirects:
    """A large file of the hub is on another server, and the way to it has a signature that expires."""

    @pytest.fixture
    def cdn(self, server: FileServer) -> Iterator[FileServer]:
        other = FileServer()
        other.files = dict(server.files)
        other.signatures = {"1"}
        yield other
        other.stop()

    @pytest.fixture
    def signed(self, server: FileServer, cdn: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
        def redirect(_method: str, target: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
            return 302, {"Location": f"{cdn.url}{target}?signature={max(cdn.signatures)}"}, b""

        monkeypatch.setattr(server, "answer", redirect)
        return server

    def test_the_token_goes_to_its_own_server_only(self, signed: FileServer, cdn: FileServer, tmp_path: Path) -> None:
        fetch(signed, tmp_path / "file", token="hf_secret")
        assert (tmp_path / "file").read_bytes() == LARGE
        assert all(headers["authorization"] == "Bearer hf_secret" for headers in signed.headers)
        assert cdn.headers
        assert not [headers for headers in cdn.headers if "hf_secret" in str(headers)]

    def test_an_address_whose_signature_has_expired_is_asked_for_again(
        self, signed: FileServer, cdn: FileServer, tmp_path: Path
    ) -> None:
        def expire(_path: str, count: int) -> Fault | None:
            cdn.signatures = {str(count + 2)}
            return Fault(cut_after=100_000) if count < 3 else None

        cdn.faults = expire
        fetch(signed, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == LARGE
        assert len(signed.asked) == 4

    def test_an_error_behind_a_redirect_has_no_signature(self, signed: FileServer, cdn: FileServer, tmp_path: Path) -> None:
        cdn.answer = lambda *_: (403, {}, b"")  # type: ignore[method-assign]
        with pytest.raises(HttpError, match="status 403") as caught:
            fetch(signed, tmp_path / "file", remote(signed))
        assert "signature" not in str(caught.value)
        assert len(signed.asked) == 1

    @pytest.mark.parametrize(
        ("location", "error", "message"),
        [
            ("", StorageError, "redirects to nowhere"),
            (PATH, StorageError, "more than 5 redirects"),
            ("ftp://host/x", BadUri, "is not an http:// or https:// address"),
            ("http://example.com/x?signature=canary", BadUri, "plain http is refused"),
            ("http://u:canary@127.0.0.1/x", BadUri, "remove the user name and the password"),
            ("http://[::1", StorageError, "redirects to an invalid address"),
        ],
    )
    def test_a_redirect_that_leads_astray_is_refused(
        self, server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, error: type, message: str
    ) -> None:
        monkeypatch.setattr(server, "answer", lambda *_: (302, {"Location": location} if location else {}, b""))
        with pytest.raises(error, match=message) as caught:
            fetch(server, tmp_path / "file", remote(server, "/small.txt"))
        assert "canary" not in str(caught.value)


@pytest.mark.parametrize("answered", ["bytes 1-{last}/{size}", "bytes 0-{last}/{size}x", "", "bytes */{size}"])
def test_another_range_than_the_requested_one_is_refused(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: str
) -> None:
    headers = {"Content-Range": answered.format(last=len(LARGE) - 1, size=len(LARGE))}
    monkeypatch.setattr(server, "answer", lambda *_: (206, headers, LARGE))
    with pytest.raises(StorageError, match="answers a request for a range with another one"):
        fetch(server, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def serve_script(script: list[Fault | None]) -> Callable[[str, int], Fault | None]:
    return lambda _path, count: script[count] if count < len(script) else None


fault_scripts = st.lists(
    st.one_of(
        st.none(),
        st.builds(Fault, cut_after=st.integers(0, len(LARGE))),
        st.builds(Fault, status=st.sampled_from([429, 500, 502, 503, 504])),
    ),
    max_size=12,
)


@pytest.mark.medium
@given(script=fault_scripts, size=st.sampled_from([0, 1, 5_000, 64 * KIB, 64 * KIB + 1, 200_000]), ranges=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_goes_wrong_on_the_way_the_file_is_whole_in_the_end(
    server: FileServer, tmp_path: Path, script: list[Fault | None], size: int, ranges: bool
) -> None:
    path = f"/{random.random()}"
    server.files[path] = LARGE[:size]
    server.ranges = ranges
    server.faults = serve_script(script)
    counts = fetch(server, tmp_path / "file", remote(server, path))
    assert (tmp_path / "file").read_bytes() == LARGE[:size]
    assert sum(counts) == size
    assert left(tmp_path) == ["file"]


def test_reading_what_has_arrived_counts_as_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the budget of a silent server would end while a large file is read from a slow disk."""
    monkeypatch.setattr(download_module, "CHUNK", 64 * KIB)
    chunks = list[int]()
    digest, target = ContentDigest("sha256", hashlib.sha256(LARGE).hexdigest()), tmp_path / "x"
    partial_path(target, "v1").write_bytes(LARGE)
    with PartialFile(target, "x", len(LARGE), digest, "v1", lambda: chunks.append(0)) as partial:
        assert (partial.count, len(chunks)) == (len(LARGE), 10)
        assert partial.publish()
    assert digest.matches(target, len(LARGE), lambda: chunks.append(1))
    assert chunks.count(1) == 10


def test_retries_of_many_files_are_one_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    budget = retries(clock)
    for attempt in range(100):
        budget.pause(Unreachable("no answer"), 0)
        budget.progress()
        assert len(caplog.records) <= 1 + clock.now / 10, attempt
    assert len(caplog.records) >= 4


def test_a_server_from_which_nothing_arrives_is_one_line_after_ten_seconds_and_an_error_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    budget = retries(clock)
    while clock.now < 30:
        budget.check("hf://org/model")
        assert len(caplog.records) == clock.now // 10
        clock.now += 1
    clock.now += 1
    with pytest.raises(Unreachable, match="hf://org/model cannot be reached: nothing has arrived for 31 seconds"):
        budget.check("hf://org/model")
