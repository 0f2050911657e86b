"""Addresses, proxies, retries and connections of the http client."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.hub_server import Fault, FileServer

from trainwright.backoff import Backoff
from trainwright.storage.errors import BadUri, StorageError, Unreachable
from trainwright.storage.http.client import HttpClient, HttpError, Retries, RetryPolicy
from trainwright.storage.http.download import ContentDigest
from trainwright.storage.uri import checked_address, origin, redirect_target, shown_address

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
def test_client_refuses_unsafe_addresses(url: str) -> None:
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


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a proxy."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "is_used"),
    [
        ({}, False),
        ({"HTTP_PROXY": "{proxy}"}, True),
        ({"http_proxy": "127.0.0.1:{port}"}, True),
        ({"ALL_PROXY": "{proxy}"}, True),
        ({"HTTPS_PROXY": "{proxy}"}, False),
        ({"HTTP_PROXY": "{proxy}", "NO_PROXY": "other, .example.invalid"}, False),
        ({"HTTP_PROXY": "{proxy}", "NO_PROXY": "*"}, False),
        ({"HTTP_PROXY": "{proxy}", "NO_PROXY": "example.org,ample.invalid"}, True),
    ],
)
def test_the_proxy_is_that_of_the_environment(
    server: FileServer, environment: pytest.MonkeyPatch, variables: dict[str, str], is_used: bool
) -> None:
    for name, value in {**variables, "TRAINWRIGHT_ALLOW_HTTP": "1"}.items():
        environment.setenv(name, value.format(proxy=server.url, port=server.url.rpartition(":")[2]))
    with HttpClient() as client:
        if is_used:
            assert client.read("http://hub.example.invalid/x", 100) == b"content"
        else:
            with pytest.raises(Unreachable):
                client.read("http://hub.example.invalid/x", 100)
        assert client.read(f"{server.url}/x", 100) == b"content"
    assert [headers["host"] for headers in server.headers] == [*["hub.example.invalid"] * is_used, server.url[7:]]


@pytest.mark.parametrize("proxy", ["socks5://me:canary@proxy:1080", "http://me:canary@proxy:x", "http://"])
def test_a_proxy_of_another_kind_is_an_error_without_its_password(environment: pytest.MonkeyPatch, proxy: str) -> None:
    environment.setenv("HTTPS_PROXY", proxy)
    with HttpClient() as client, pytest.raises(StorageError, match=r"the proxy .* of the environment") as caught:
        client.read("https://host.invalid/x", 100)
    assert "canary" not in str(caught.value)


def test_a_request_goes_through_the_proxy_with_its_password(server: FileServer, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTP_PROXY", f"http://me:pass%40word@{server.url[7:]}")
    environment.setenv("TRAINWRIGHT_ALLOW_HTTP", "1")
    with HttpClient() as client:
        assert client.read("http://example.invalid/x", 100) == b"content"
    assert server.headers[0]["proxy-authorization"] == f"Basic {base64.b64encode(b'me:pass@word').decode()}"


@pytest.mark.parametrize(
    ("url", "reason"), [("http://127.0.0.1:1/x", "Connection refused"), ("https://host.invalid/x", "[Nn]ame")]
)
def test_a_failed_connection_says_why(environment: pytest.MonkeyPatch, url: str, reason: str) -> None:
    with HttpClient() as client, pytest.raises(Unreachable, match=f"cannot be reached: .*{reason}"):
        client.read(url, 100)


def test_a_proxy_that_cannot_be_reached_is_named_as_the_cause(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with HttpClient() as client, pytest.raises(Unreachable, match=r"cannot be reached: the proxy: Connection refused$"):
        client.read("https://host.invalid/x", 100)


def test_a_connection_is_used_again_and_one_that_the_server_closed_meanwhile_is_replaced(server: FileServer) -> None:
    with HttpClient() as client:
        for _ in range(3):
            assert client.read(f"{server.url}/x", 100) == b"content"
        assert len(server.clients) == 1
        server.faults = lambda _path, _count: Fault(drops=True)
        retries = Retries(RetryPolicy(backoff=Backoff(0.01, 0.1)))
        for _ in range(3):  # it may be sent before the client notices
            assert retries.call(lambda: client.read(f"{server.url}/x", 100)) == b"content"
    assert 2 <= len(server.clients) <= 5


def test_an_answer_has_a_limit(server: FileServer) -> None:
    with HttpClient() as client, pytest.raises(StorageError, match="the answer is larger than 6 bytes"):
        client.read(f"{server.url}/x", 6)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("\u0663", None),
        ("9" * 400, 21_600.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(server: FileServer, value: str, seconds: float | None) -> None:
    server.faults = lambda _path, _count: Fault(status=503, headers={"Retry-After": value.encode().decode("latin-1")})
    with HttpClient() as client, pytest.raises(HttpError) as caught:
        client.read(f"{server.url}/x", 100)
    assert caught.value.retry_after == seconds


def test_digests_are_those_of_the_hub(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello\n")
    assert ContentDigest("git-sha1", "ce013625030ba8dba906f756967f9e9ca394464a").matches(tmp_path / "x", 6)
    digest = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
    assert ContentDigest("sha256", digest).matches(tmp_path / "x", 6)
    assert not ContentDigest("sha256", digest).matches(tmp_path / "x", 7)
