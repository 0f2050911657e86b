"""Nothing of a token, a password or a key is in an error, its causes, the log or the output, however the connection fails."""

from __future__ import annotations

import base64
import http.client
import logging
import re
import socket
import ssl
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

from trainwright.api.errors import ApiError, ServiceUnavailable
from trainwright.api.kinds import POD
from trainwright.cluster import NoCluster, connect
from trainwright.cluster.answers import CannotConnect, connection_failure
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of, is_permanent

dynamic = OnFirstUse("kubernetes.dynamic")

CANARY = "c4n4ry-of-the-test"
NOWHERE = "https://127.0.0.1:1"
ENCODED = base64.b64encode(CANARY.encode()).decode()
PLUGIN = "client.authentication.k8s.io/v1"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A kubeconfig with fields of the cluster and of the user."""

    def to_file(cluster: dict[str, Any], user: dict[str, Any]) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": NOWHERE, **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(content))
        return tmp_path / "config"

    return to_file


def told(error: BaseException) -> str:
    """What Airflow prints of an error: the causes as well."""
    parts, seen = [], error
    while seen is not None:
        parts += [str(seen), repr(seen.args)]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)  # type: ignore[assignment]
    return "\n".join([*parts, *traceback.format_exception(error)])


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({}, {"token": f"a\n{CANARY}"}, "the token contains characters that no token has"),
        ({}, {"token": f"\u00fc{CANARY}"}, "the token contains characters that no token has"),
        ({"server": f"https://me:{CANARY}@127.0.0.1:1"}, {}, "cluster 'c': server: contains a user name or password"),
        ({"server": f"https://me:{CANARY}/x@127.0.0.1:1"}, {}, "cluster 'c': server: not a valid URL"),
        ({"server": f"ftp://{CANARY}"}, {}, "server: not a valid URL; expected https://HOST or http://HOST"),
        ({"server": "https://host:99999"}, {}, "server: not a valid URL"),
        ({"server": "https://a..b"}, {}, "server: not a valid host name"),
        ({"server": "https://" + "a" * 64}, {}, "server: not a valid host name"),
        ({"server": "host:6443"}, {}, "server: not a valid URL"),
        ({"proxy-url": f"http://me:{CANARY}@proxy:port"}, {}, "cluster 'c': proxy-url: not a valid URL"),
        ({"proxy-url": f"http://me:{CANARY}/@proxy"}, {}, "cluster 'c': proxy-url: not a valid URL"),
        ({"certificate-authority-data": ENCODED}, {}, "certificate-authority-data: not a certificate or key in PEM form"),
        ({"certificate-authority-data": f"{ENCODED}="}, {}, "certificate-authority-data: not"),
        ({}, {"client-key-data": f"{CANARY}!"}, "user 'u': client-key-data: not valid base64"),
        ({}, {"client-key-data": ENCODED, "client-certificate-data": ENCODED}, "client-certificate-data: not a certificate"),
        ({}, {"token": [CANARY]}, "cannot be used"),
        ({}, {"auth-provider": {"name": "oidc", "config": {"id-token": CANARY}}}, ""),
        ({}, {"username": "me", "password": CANARY + "\n"}, ""),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_without_its_values(
    write: Any, caplog: pytest.LogCaptureFixture, capfd: Any, cluster: dict[str, Any], user: dict[str, Any], said: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises((NoCluster, ApiError), match=re.escape(said) or None) as raised:
        connect(write(cluster, user)).with_timeout(0.5).get(POD, "a", "team")
    assert isinstance(raised.value, NoCluster) or not said
    output = told(raised.value) + caplog.text + "".join(capfd.readouterr())
    for secret in (CANARY, ENCODED, base64.b64encode(f"me:{CANARY}".encode()).decode()[:20]):
        assert secret not in output


@pytest.mark.parametrize(
    "proxy", [f"http://me:{CANARY}@proxy:port", f"gopher://me:{CANARY}@proxy", f"http://me:{CANARY}@127.0.0.1:1"]
)
def test_a_password_in_the_proxy_of_the_environment_is_not_repeated(
    write: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with pytest.raises((NoCluster, ServiceUnavailable)) as raised:
        connect(write({"server": "https://cluster.invalid"}, {})).with_timeout(0.5).get(POD, "a", "team")
    assert CANARY not in told(raised.value) + caplog.text


@pytest.mark.medium
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"echo {CANARY} >&2; echo {CANARY}; exit 3", "plugin' failed with exit code 3"),
        (f"echo {CANARY}", "plugin' returned no valid credentials"),
        (
            f"""echo '{{"apiVersion": "{PLUGIN}", "kind": "x", "status": {{}}, "x": "{CANARY}"}}'""",
            "returned no valid credentials",
        ),
        (f"""echo '{{"apiVersion": "{CANARY}", "kind": "x", "status": {{}}}}'""", "returned no valid credentials"),
        (f"""echo '{{"apiVersion": "{PLUGIN}", "kind": "x", "status": {{"token": "a\\\\n{CANARY}"}}}}'""", "the token contains"),
        ("", "plugin' is not installed"),
        ("not executable", "plugin' cannot be executed"),
    ],
)
def test_a_plugin_that_fails_is_an_error_without_its_output(
    write: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any, script: str, said: str
) -> None:
    caplog.set_level(logging.DEBUG)
    plugin = tmp_path / "plugin"
    if script:
        plugin.write_text(f"#!/bin/sh\n{script}\n")
        plugin.chmod(0o755 if script != "not executable" else 0o644)
    config = write({}, {"exec": {"apiVersion": PLUGIN, "command": str(plugin), "interactiveMode": "Never"}})
    with pytest.raises(NoCluster, match=said) as raised:
        connect(config)
    assert CANARY not in told(raised.value) + caplog.text + "".join(capfd.readouterr())


@pytest.mark.medium
@pytest.mark.parametrize("code", [400, 401, 403, 500, 502])
def test_an_answer_that_repeats_the_request_is_not_repeated(
    stub: Any, tmp_path: Path, kubeconfig: Any, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = connect(kubeconfig(tmp_path / "config", ("c", stub.url, ""), token=CANARY))
    for _ in range(2):
        stub.answer(f"<pre>authorization: Bearer {CANARY}</pre>".encode(), code, Warning=f'299 - "{CANARY}"')
    with pytest.raises(ApiError) as raised:
        cluster.get(POD, "a", "team")
    assert CANARY not in told(raised.value) + caplog.text


def _verification() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "said", "permanent"),
    [
        (ValueError(f"Invalid header value b'Bearer {CANARY}'"), "ValueError", True),
        (_verification(), "the server's certificate is not accepted: self-signed certificate", True),
        (UnicodeError(f"label too long: {CANARY}"), "the host name is not valid", True),
        (ssl.SSLEOFError(8, f"EOF {CANARY}"), "TLS failed: SSLEOFError", False),
        (socket.gaierror(-3, "Temporary failure in name resolution"), "cannot be resolved: Temporary failure", False),
        (socket.gaierror(-2, "Name or service not known"), "cannot be resolved: Name or service not known", False),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused", False),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer", False),
        (TimeoutError(f"timed out {CANARY}"), "timed out", False),
        (http.client.BadStatusLine(CANARY), "BadStatusLine", False),
        (OSError(CANARY), "OSError", False),
    ],
)
def test_why_a_server_cannot_be_reached_is_said_in_our_words(error: Exception, said: str, permanent: bool) -> None:
    wrapped = OSError(f"Max retries exceeded: {CANARY}")
    wrapped.reason = error  # type: ignore[attr-defined]
    for one in (error, wrapped):
        found = connection_failure("https://host", one)
        assert str(found) == f"cannot reach the Kubernetes API at https://host: {found.message.partition(': ')[2]}"
        assert said in str(found)
        assert CANARY not in told(found)
        assert (found.retryable, isinstance(found, CannotConnect), is_permanent(found)) == (not permanent, permanent, permanent)
        assert exit_code_of(found) is ExitCode.unreachable


def test_another_authority_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    from trainwright.cluster.retrying import RetryingCluster

    tries: list[str] = []

    def fail(*_: Any, **__: Any) -> Any:
        tries.append("")
        raise _verification()

    monkeypatch.setattr(dynamic.DynamicClient, "request", fail)
    with pytest.raises(CannotConnect):
        RetryingCluster(connect(write({}, {"token": "a"}))).get(POD, "a", "team")
    assert len(tries) == 1
