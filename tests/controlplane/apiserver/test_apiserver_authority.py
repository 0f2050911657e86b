"""The certificate authority of a home: made once, handed over in time, never in the way of clients that trusted it before."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import urllib3
import yaml
from cryptography import x509
from support.waiting import eventually

from trainwright.controlplane.apiserver.auth.credentials import (
    AUTHORITY_VALID_FOR,
    CLOCK_SKEW,
    RENEW_BEFORE,
    SERVER_VALID_FOR,
    SUCCESSOR_OVERLAP,
    load_credentials,
    write_kubeconfig,
)
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import Serving, serve
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.embedded.plane import CertificateRotation

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DAY = timedelta(days=1)


def read(path: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(path.read_bytes())


def test_the_server_certificate_is_signed_by_the_authority(tmp_path: Path) -> None:
    credentials = load_credentials(tmp_path, now=NOW)
    (authority,), (server,) = read(credentials.authority), read(credentials.certificate)
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert {str(address) for address in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1"}
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (server.not_valid_before_utc, authority.not_valid_before_utc) == (NOW - CLOCK_SKEW, NOW - CLOCK_SKEW)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert b"PRIVATE" not in credentials.authority.read_bytes()


def test_the_server_certificate_is_renewed_and_the_authority_is_not(tmp_path: Path) -> None:
    first = load_credentials(tmp_path, now=NOW)
    authority, server = first.authority.read_bytes(), first.certificate.read_bytes()
    load_credentials(tmp_path, now=NOW + SERVER_VALID_FOR - RENEW_BEFORE - DAY)
    assert first.certificate.read_bytes() == server
    load_credentials(tmp_path, now=NOW + SERVER_VALID_FOR - RENEW_BEFORE + DAY)
    assert first.certificate.read_bytes() != server
    assert first.authority.read_bytes() == authority


def test_an_authority_is_handed_over_before_it_ends(tmp_path: Path) -> None:
    """Whoever was told in the last year of the old one trusts the new one too."""
    first = read(load_credentials(tmp_path, now=NOW).authority)
    end = NOW + AUTHORITY_VALID_FOR
    told = read(load_credentials(tmp_path, now=end - SUCCESSOR_OVERLAP + DAY).authority)
    assert told[0] == first[0]
    assert len(told) == 2
    renewed = load_credentials(tmp_path, now=end - RENEW_BEFORE + DAY)
    assert read(renewed.authority) == [told[1]]
    read(renewed.certificate)[0].verify_directly_issued_by(told[1])
    assert not list(tmp_path.glob("ca-next*"))
    long_after = load_credentials(tmp_path, now=end + 20 * AUTHORITY_VALID_FOR / 10)  # nobody started it meanwhile
    (authority,) = read(long_after.authority)
    read(long_after.certificate)[0].verify_directly_issued_by(authority)


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key", "trusted.crt"])
@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_broken_credentials_are_replaced(tmp_path: Path, name: str, content: bytes | None) -> None:
    load_credentials(tmp_path, now=NOW)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    credentials = load_credentials(tmp_path, now=NOW)
    read(credentials.certificate)[0].verify_directly_issued_by(read(credentials.authority)[0])


def test_a_clock_that_was_ahead(tmp_path: Path) -> None:
    """Certificates made on a wrong day are not valid yet."""
    load_credentials(tmp_path, now=NOW + 90 * DAY)
    credentials = load_credentials(tmp_path, now=NOW)
    assert all(
        certificate.not_valid_before_utc <= NOW for certificate in read(credentials.authority) + read(credentials.certificate)
    )


def reachable(serving: Serving, trusted: Path | bytes, host: str = "127.0.0.1") -> int:
    context = ssl.create_default_context(cadata=(trusted if isinstance(trusted, bytes) else trusted.read_bytes()).decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with urllib3.PoolManager(ssl_context=context, retries=False) as pool:
        return pool.request("GET", f"https://{host}:{serving.port}/readyz").status


@pytest.mark.medium
def test_a_running_server_takes_its_new_certificate(tmp_path: Path, server: ResourceServer) -> None:
    """The clients' file stays; connections from before go on."""
    made = datetime.now(UTC) - SERVER_VALID_FOR + RENEW_BEFORE - DAY
    credentials = load_credentials(tmp_path, now=made)
    app = Api(server, Tokens(credentials.admin_token, credentials.signing_key))
    trusted = credentials.authority.read_bytes()
    now = [made]
    with serve(app, cert=credentials.certificate, key=credentials.key) as serving:
        address = ("127.0.0.1", serving.port)
        first = ssl.get_server_certificate(address)
        pool = urllib3.HTTPSConnectionPool(*address, ca_certs=str(credentials.authority), retries=False)
        assert pool.request("GET", "/readyz").status == 200
        rotation = CertificateRotation(tmp_path, serving, clock=lambda: now[0])
        assert not rotation.look()
        rotation.start(0.05)
        try:
            now[0] = datetime.now(UTC)
            eventually(lambda: ssl.get_server_certificate(address) != first, what="the new certificate is shown")
        finally:
            rotation.stop()
        assert pool.request("GET", "/readyz").status == 200
        assert pool.num_connections == 1
        for host in ("127.0.0.1", "localhost"):
            assert reachable(serving, trusted, host) == 200
        write_kubeconfig(tmp_path / "kubeconfig", serving.url, credentials)
        cluster = yaml.safe_load((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]
        assert "insecure-skip-tls-verify" not in cluster


@pytest.mark.medium
def test_a_pair_that_is_none_leaves_the_old_one_in_use(tmp_path: Path, server: ResourceServer) -> None:
    credentials = load_credentials(tmp_path / "one")
    other = load_credentials(tmp_path / "two")
    app = Api(server, Tokens(credentials.admin_token, credentials.signing_key))
    with serve(app, cert=credentials.certificate, key=credentials.key) as serving:
        with pytest.raises(ssl.SSLError):
            serving.reload(credentials.certificate, other.key)
        assert reachable(serving, credentials.authority) == 200
