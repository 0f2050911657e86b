"""Every way in which a server refuses, fails or is another: one line, its exit code, no stack trace, no token."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pipeline_commands import Run
from servers.kfp_api_server import Fault, KfpApiServer, kfp_api_server
from support.ports import free_port

pytestmark = pytest.mark.slow
TOKEN = "eyJhbGciOi.secret-part"


@pytest.fixture
def words(tiny_yaml: str) -> tuple[str, ...]:
    return ("pipeline", "run", tiny_yaml, "--param", "a=1")


def one_line(text: str) -> str:
    [line] = text.splitlines()
    assert "Traceback" not in text
    assert TOKEN not in text
    return line


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (Fault(401), 4, "the credentials are missing or not accepted (401)"),
        (Fault(403), 4, "not permitted (403): scripted"),
        (Fault(404), 3, "has no API of Kubeflow Pipelines 2 (404)"),
        (Fault(400), 2, "the server refuses the request (400): scripted"),
        (Fault(429), 3, "too many requests (429)"),
        (Fault(500), 3, "the server failed (500): scripted"),
        (Fault(503), 3, "the server failed (503)"),
        (Fault("html"), 3, "does not answer as an API of Kubeflow Pipelines 2"),
        (Fault("gzip"), 3, "does not answer as an API of Kubeflow Pipelines 2"),
        (Fault("redirect"), 4, "redirects to http://127.0.0.1"),
        (Fault("drop-before"), 3, "cannot reach Kubeflow Pipelines"),
        (Fault("slow", seconds=30), 3, "timed out"),
    ],
    ids=lambda value: str(getattr(value, "kind", "")) or None,
)
def test_each_error_is_one_line_with_its_code(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, fault: Fault, code: int, said: str
) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", TOKEN)
    kfp.faults.append(fault)
    result = run(*words, "--host", kfp.url)
    assert result.exit_code == code, result.output
    assert said in one_line(result.stderr)
    assert kfp.runs == {}


@pytest.mark.parametrize("path", ["experiments", "runs"])
@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 1), (400, 2), (500, 3)])
def test_errors_after_the_first_request_have_the_same_codes(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], path: str, status: int, code: int
) -> None:
    kfp.faults.append(Fault(status, method="POST", path=f"{path}$", message="no\nsecond line"))
    result = run(*words, "--host", kfp.url)
    assert result.exit_code == code, result.output
    assert f"({status}): no" in one_line(result.stderr)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"state": "SUCCEEDED"},
        {"run_id": ""},
        {"run_id": "1", "created_at": "never"},
        {"run_id": "1", "run_details": {"task_details": 1}},
    ],
)
def test_an_answer_that_is_no_run_is_an_error(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], answer: dict[str, Any]
) -> None:
    kfp._create_run = lambda _: answer  # type: ignore[method-assign]
    kfp._check = lambda *_: None  # type: ignore[method-assign]
    result = run(*words, "--host", kfp.url)
    assert (result.exit_code, "does not answer as an API of Kubeflow Pipelines 2" in one_line(result.stderr)) == (3, True)


def test_an_answer_has_a_largest_size(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright.pipeline_runs.api_calls._MAX_BYTES", 64)
    result = run(*words, "--host", kfp.url)
    assert (result.exit_code, "does not answer as an API of Kubeflow Pipelines 2" in one_line(result.stderr)) == (3, True)


def test_a_server_that_fails_for_a_moment_is_asked_again(kfp: KfpApiServer, run: Run, words: tuple[str, ...]) -> None:
    kfp.faults += [Fault(500, times=2, method="GET"), Fault(503, times=2, method="POST", path="runs$"), Fault(429, times=1)]
    result = run(*words, "--host", kfp.url)
    assert result.exit_code == 0, result.output
    assert len(kfp.runs) == 1


def test_the_token_comes_from_the_environment_and_goes_into_each_request(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.token = TOKEN
    refused = run(*words, "--host", kfp.url)
    assert (refused.exit_code, "KFP_EXISTING_TOKEN" in one_line(refused.stderr)) == (4, True)
    kfp.authorizations.clear()
    monkeypatch.setenv("KFP_EXISTING_TOKEN", f"{TOKEN}\n")
    assert run(*words, "--host", kfp.url).exit_code == 0
    assert set(kfp.authorizations) == {f"Bearer {TOKEN}"}


def test_a_token_file_is_read_again_for_each_request(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a pod's, which the kubelet renews."""
    file = tmp_path / "token"
    file.write_text("first\n", "utf-8")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(file))
    answer = kfp.handle

    def renew(*arguments: object) -> object:
        file.write_text("second\n", "utf-8")
        return answer(*arguments)  # type: ignore[arg-type]

    kfp.handle = renew  # type: ignore[assignment]
    assert run(*words, "--host", kfp.url).exit_code == 0
    assert (kfp.authorizations[0], kfp.authorizations[-1]) == ("Bearer first", "Bearer second")


def test_a_token_that_the_server_repeats_is_not_shown(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", TOKEN)
    kfp.token = "another"
    result = run(*words, "--host", kfp.url)
    assert (result.exit_code, "***" in one_line(result.stderr)) == (4, True)


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "t\u00f6ken"])
def test_a_token_that_no_header_can_have_is_refused_without_being_shown(
    kfp: KfpApiServer, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("KFP_EXISTING_TOKEN", token)
    result = run(*words, "--host", kfp.url)
    assert (result.exit_code, kfp.requests) == (2, [])
    assert one_line(result.stderr) == "KFP_EXISTING_TOKEN: contains characters that no token has"


def test_a_refused_connection_is_reported_at_once(run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.pipeline_runs.server.time.sleep", lambda _: pytest.fail("waited"))
    port = free_port()
    result = run(*words, "--host", f"http://127.0.0.1:{port}")
    assert (result.exit_code, "Connection refused" in one_line(result.stderr)) == (3, True)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1:8888", "not an http:// or https:// address"),
        ("ftp://example.com", "not an http:// or https:// address"),
        ("https://user:hunter2@example.com", "remove the user name and the password"),
        ("https://example.com/?token=hunter2", "without a query"),
        ("https://example.com/#/runs", "without a query and a fragment"),
        ("http://[", "not a valid address"),
    ],
)
def test_an_address_that_is_none_is_refused(run: Run, words: tuple[str, ...], host: str, said: str) -> None:
    result = run(*words, "--host", host)
    assert result.exit_code == 2
    assert said in one_line(result.stderr)
    assert "hunter2" not in result.stderr


def test_a_host_is_required(run: Run, words: tuple[str, ...], kfp: KfpApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(*words)
    assert (result.exit_code, "KF_PIPELINES_ENDPOINT" in one_line(result.stderr)) == (2, True)
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", f"{kfp.url}/")
    assert run(*words).exit_code == 0


def test_a_certificate_of_an_unknown_authority_is_refused_at_once(
    run: Run, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, context = self_signed(tmp_path)
    with kfp_api_server(context) as kfp:
        with monkeypatch.context() as patched:
            patched.setattr("trainwright.pipeline_runs.server.time.sleep", lambda _: pytest.fail("waited"))
            result = run(*words, "--host", kfp.url)
        assert result.exit_code == 3
        assert "the server's certificate is not accepted" in one_line(result.stderr)
        assert "SSL_CERT_FILE" in result.stderr
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert run(*words, "--host", kfp.url).exit_code == 0


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kfp")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(certificate.public_bytes(encoding))
    (folder / "key.pem").write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return folder / "ca.pem", context
