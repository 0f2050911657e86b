"""Addresses, proxies, retries and connections of the http client."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.hub_server import Fault, FileServer

from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.http.client import HttpClient, retry_after_seconds
from trainwright.storage.http.content_digest import ContentDigest
from trainwright.storage.http.partial_file import add_span, missing_spans
from trainwright.storage.http.proxy import proxy_for
from trainwright.storage.web_address import checked_address, origin, redirect_target, shown_address

pytestmark = pytest.mark.medium


@pytest.fixture
def server() -> Iterator[FileServer]:
    started = FileServer()
    started.files = {"/x": b"content"}
    yield started
    started.stop()


@pytest.mark.parametrize(
    ("given", "requested"),
    [
        ("https://Example.COM/a b?c d#e", "https://example.com/a%20b?c%20d"),
        ("https://example.com", "https://example.com/"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
        ("http://localhost:8080/x%2Fy?sig=a%2Bb%3D", "http://localhost:8080/x%2Fy?sig=a%2Bb%3D"),
        ("http://127.1.2.3/", "http://127.1.2.3/"),
        ("http://[::1]:9/x", "http://[::1]:9/x"),
    ],
)
def test_an_address_is_encoded_once(given: str, requested: str) -> None:
    assert checked_address(given, {}).geturl() == requested


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://169.254.169.254/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://",
        "https://u:p@example.com/",
        "https://example.com:x/",
        "https://exa mple.com/",
        "https://a\r\nb/",
        "https://[::1",
        "",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(BadUri):
        checked_address(url, {})


def test_plain_http_can_be_allowed() -> None:
    assert checked_address("http://example.com/x", {"TRAINWRIGHT_ALLOW_HTTP": "true"}).geturl() == "http://example.com/x"


@given(st.text(max_size=60))
def test_no_text_makes_an_address_that_is_another_error(text: str) -> None:
    for url in (text, f"https://{text}", f"https://host/{text}"):
        try:
            parts = checked_address(url, {})
        except BadUri:
            continue
        assert parts.geturl().isascii()
        assert not set(parts.geturl()) & set(' \r\n\t"<>')


@given(st.text(max_size=60))
def test_a_redirect_never_leaves_tls(location: str) -> None:
    try:
        target = redirect_target("https://host/x", location)
    except StorageError:
        return
    assert target.lower().startswith("https:")


def test_a_shown_address_has_no_user_and_no_query() -> None:
    assert shown_address("https://u:canary@host/a/b?canary=1#canary") == "https://host/a/b"


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin("https://Host/x") == origin("https://host:443/y") == ("https", "host", 443)
    assert len({origin(url) for url in ("https://host", "http://host", "https://host:8443", "https://host.evil")}) == 4


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, ("proxy", 3128)),
        ({"https_proxy": "proxy:3128"}, ("proxy", 3128)),
        ({"ALL_PROXY": "http://proxy"}, ("proxy", 80)),
        ({"HTTP_PROXY": "http://proxy"}, None),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "other, .example.com"}, None),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "example.org,ample.com"}, ("proxy", 80)),
    ],
)
def test_the_proxy_is_that_of_the_environment(environ: dict[str, str], expected: tuple[str, int] | None) -> None:
    proxy = proxy_for("https", "hub.example.com", 443, environ)
    assert (proxy and (proxy.host, proxy.port)) == expected
    assert proxy_for("https", "127.0.0.1", 443, environ) is None


@pytest.mark.parametrize("proxy", ["socks5://proxy:1080", "https://proxy", "http://proxy:x", "http://"])
def test_a_proxy_of_another_kind_is_an_error_without_its_password(proxy: str) -> None:
    with pytest.raises(StorageError, match="the proxy"):
        proxy_for("https", "host", 443, {"HTTPS_PROXY": proxy})


def test_a_request_goes_through_the_proxy_with_its_password(server: FileServer) -> None:
    port = server.url.rpartition(":")[2]
    environ = {"HTTP_PROXY": f"http://me:pass%40word@127.0.0.1:{port}", "TRAINWRIGHT_ALLOW_HTTP": "1"}
    with HttpClient(environ=environ) as client:
        assert client.read("http://example.invalid/x", 100)[0] == b"content"
    assert server.headers[0]["host"] == "example.invalid"
    assert server.headers[0]["proxy-authorization"] == f"Basic {base64.b64encode(b'me:pass@word').decode()}"


def test_a_connection_is_used_again_also_after_errors_and_empty_bodies(server: FileServer) -> None:
    server.files["/empty"] = b""
    with HttpClient(environ={}) as client:
        for path in ("/x", "/empty", "/none", "/x", "/x"):
            try:
                client.read(server.url + path, 100)
            except StorageError:
                assert path == "/none"
    assert len(server.clients) == 1


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server: FileServer) -> None:
    server.closes = False
    with HttpClient(environ={}) as client:
        for count in range(3):
            server.faults = lambda _path, _count: Fault(drops=True)
            assert client.read(f"{server.url}/x", 100)[0] == b"content", count
    assert len(server.clients) == 3


def test_an_answer_has_a_limit(server: FileServer) -> None:
    with HttpClient(environ={}) as client, pytest.raises(StorageError, match="the answer is larger than 6 bytes"):
        client.read(f"{server.url}/x", 6)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("9" * 400, 999_999_999.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after_seconds(value, 10.0) == seconds


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12)


@given(spans)
def test_spans_are_the_union_of_what_arrived_and_the_missing_ones_the_rest(arrived: list[tuple[int, int]]) -> None:
    joined: list[tuple[int, int]] = []
    for start, end in arrived:
        joined = add_span(joined, start, end)
    covered = {position for start, end in arrived for position in range(start, end)}
    assert {position for start, end in joined for position in range(start, end)} == covered
    assert all(before[1] < after[0] for before, after in itertools.pairwise(joined))
    missing = [position for start, end in missing_spans(joined, 70) for position in range(start, end)]
    assert missing == [position for position in range(70) if position not in covered]


def test_digests_are_those_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello\n")
    assert ContentDigest("git-sha1", "ce013625030ba8dba906f756967f9e9ca394464a").matches(tmp_path / "x", 6)
    digest = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert ContentDigest("sha256", digest).matches(tmp_path / "x", 6)
    assert not ContentDigest("sha256", digest).matches(tmp_path / "x", 7)
