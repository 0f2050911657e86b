"""Credentials, tokens, and the port: made once, private, renewed in time, and clear about what is wrong."""

from __future__ import annotations

import http.client
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trainwright.api.errors import Unauthorized
from trainwright.controlplane.apiserver.auth.credentials import RENEW_BEFORE, SERVER_VALID_FOR, load_credentials
from trainwright.controlplane.apiserver.auth.tokens import Tokens, bearer_token
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import PortInUse, serve
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_made_once_and_private(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    first = load_credentials(home, now=NOW)
    contents = {path.name: path.read_bytes() for path in home.iterdir()}
    assert set(contents) == {"tls.crt", "tls.key", "ca.crt", "ca.key", "trusted.crt", "admin.token", "signing.key"}
    assert load_credentials(home, now=NOW + timedelta(days=300)) == first
    assert {path.name: path.read_bytes() for path in home.iterdir()} == contents
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()} == {0o600}
    assert first.admin_token not in repr(first)


def test_open_permissions_are_closed(tmp_path: Path) -> None:
    load_credentials(tmp_path, now=NOW)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    load_credentials(tmp_path, now=NOW)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("broken", ["expiring", "no key", "another key", "not a certificate"])
def test_a_certificate_that_will_not_do_is_made_anew(tmp_path: Path, broken: str) -> None:
    first = load_credentials(tmp_path / "one", now=NOW)
    other = load_credentials(tmp_path / "two", now=NOW)
    before, later = first.certificate.read_bytes(), NOW
    if broken == "expiring":
        later = NOW + SERVER_VALID_FOR - RENEW_BEFORE + timedelta(hours=1)
    elif broken == "no key":
        first.key.unlink()
    elif broken == "another key":
        first.key.write_bytes(other.key.read_bytes())
    else:
        first.certificate.write_text("nonsense")
    again = load_credentials(tmp_path / "one", now=later)
    assert again.certificate.read_bytes() != before
    assert again.admin_token == first.admin_token


def test_tokens() -> None:
    tokens = Tokens("a" * 32, b"k" * 32)
    assert tokens.is_admin("a" * 32)
    assert not tokens.is_admin("a" * 31 + "é")
    bound = {"pod": {"name": "p", "uid": "1"}, "serviceaccount": {"name": "reader", "uid": "2"}}
    issued = tokens.issue(["me"], "ns", "reader", bound, 60, datetime.now(UTC))
    claims = tokens.verify(issued, "me")
    assert (claims["aud"], claims["sub"]) == (["me"], "system:serviceaccount:ns:reader")
    assert claims["kubernetes.io"] == {"namespace": "ns", **bound}
    for token, audience in ((issued, "you"), ("x.y.z", "me"), ("", "me")):
        with pytest.raises(Unauthorized) as refused:
            tokens.verify(token, audience)
        assert refused.value.__cause__ is None
    with pytest.raises(ValueError, match="at least 16 characters"):
        Tokens("short", b"k" * 32)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer x", "x"),
        ("bearer   x ", "x"),
        ("Basic x", None),
        ("Bearer", None),
        ("Bearer x y", None),
        ("", None),
        (None, None),
    ],
)
def test_bearer_token(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token


@pytest.mark.medium
def test_a_port_in_use_is_named(server: ResourceServer) -> None:
    app = Api(server, Tokens("a" * 32, b"k" * 32))
    with serve(app) as serving, pytest.raises(PortInUse, match=f"port {serving.port} on 127.0.0.1 is in use"):
        serve(app, port=serving.port)
    with serve(Api(server, Tokens("a" * 32, b"k" * 32)), port=serving.port) as again:
        assert again.port == serving.port
    with pytest.raises(ValueError, match=r"127\.0\.0\.1 only"):
        serve(app, host="0.0.0.0")


@pytest.mark.medium
def test_answers_do_not_wait_for_acknowledgements(server: ResourceServer) -> None:
    with serve(Api(server, Tokens("a" * 32, b"k" * 32))) as serving:
        client, times = http.client.HTTPConnection("127.0.0.1", serving.port), []
        for _ in range(20):
            began = time.monotonic()
            client.request("GET", "/version")
            client.getresponse().read()
            times.append(time.monotonic() - began)
        client.close()
    # With Nagle's delay every answer after the first takes 40 ms, however idle the machine is.
    assert min(times[1:]) < 0.03
