"""Which cluster is chosen, and what is said when none can be."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

from trainwright.api.errors import ApiError, Unauthorized
from trainwright.api.kinds import POD
from trainwright.cluster import NoCluster, connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.controlplane.apiserver.auth.credentials import load_credentials
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import stop

client = OnFirstUse("kubernetes.client")
config = OnFirstUse("kubernetes.config")
incluster_config = OnFirstUse("kubernetes.config.incluster_config")

Write = Callable[..., Path]
module = importlib.import_module("trainwright.cluster.connect")  # the package has a function of this name


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is configured; returns the home of its user."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "account/token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "account/ca.crt"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "user/.kube").mkdir(parents=True)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("an embedded control plane was started without being asked for")

    monkeypatch.setattr(module, "start_embedded", never)
    return tmp_path / "user"


@pytest.fixture
def in_a_pod(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("pod-token")
    (account / "namespace").write_text("team-of-the-pod\n")
    shutil.copy(load_credentials(tmp_path / "any").authority, account / "ca.crt")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return account


@pytest.mark.parametrize("first", range(4))
def test_the_order_is_argument_variable_pod_user(
    bare: Path, in_a_pod: Path, tmp_path: Path, kubeconfig: Write, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Everything from the first on is configured; the first is taken."""
    argument = kubeconfig(tmp_path / "argument", ("c", "http://argument", "team-argument"))
    variable = kubeconfig(tmp_path / "variable", ("c", "http://variable", "team-variable"))
    kubeconfig(bare / ".kube/config", ("c", "http://user", ""))
    if first <= 1:
        monkeypatch.setenv("KUBECONFIG", str(variable))
    if first > 2:
        (in_a_pod / "token").unlink()
    chosen = connect(argument if first == 0 else None)
    expected = [
        ("http://argument", "team-argument", "argument"),
        ("http://variable", "team-variable", "KUBECONFIG"),
        ("https://10.0.0.1:443", "team-of-the-pod", "in-cluster"),
        ("http://user", "default", "~/.kube/config"),
    ]
    assert (chosen.host, chosen.default_namespace, chosen.origin) == expected[first]


def test_a_pod_whose_account_is_broken_does_not_fall_back(bare: Path, in_a_pod: Path, kubeconfig: Write) -> None:
    kubeconfig(bare / ".kube/config", ("c", "http://user", ""))
    (in_a_pod / "ca.crt").write_text("")
    with pytest.raises(NoCluster, match="service account cannot be used"):
        connect()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a\n- b\n",
        b"just text",
        b"a: b: c\n",
        b"users:\n- name: me\n  user: {token: hidden-token\n",
        b"\xff\xfe\x00\x01",
        b"current-context: x\n",
        b"current-context: x\ncontexts: [{name: x}]\n",
        b"current-context: x\ncontexts: 3\nclusters: 3\nusers: 3\n",
        b"current-context: x\ncontexts: [{name: x, context: {cluster: y, user: z}}]\nclusters: []\nusers: []\n",
    ],
)
def test_a_broken_kubeconfig_is_one_line_that_names_it(
    bare: Path, tmp_path: Path, kubeconfig: Write, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    kubeconfig(bare / ".kube/config", ("c", "http://user", ""))
    (tmp_path / "broken").write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    with pytest.raises(NoCluster) as raised:
        connect()
    assert str(tmp_path / "broken") in str(raised.value)
    assert "hidden-token" not in str(raised.value)
    assert "\n" not in str(raised.value)


_ASK = """
import sys
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster import connect
cluster = connect(embedded=sys.argv[1])
cluster.list(TRAINJOB)
print(cluster.host)
"""


@pytest.mark.slow
def test_ten_processes_that_ask_at_once_get_one_embedded_control_plane(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    command = [sys.executable, "-c", _ASK, str(home.path)]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(10)]
    try:
        told = [process.communicate(timeout=120) for process in asking]
        assert [process.returncode for process in asking] == [0] * 10, told
        running = home.running()
        assert running is not None
        assert {host for host, _ in told} == {f"{running.url}\n"}
    finally:
        stop(home)


@pytest.mark.medium
def test_an_embedded_control_plane_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(NoCluster, match="did not start") as raised:
        connect(embedded=tmp_path / "file")
    assert "Traceback" not in str(raised.value)


def test_a_token_that_was_renewed_in_its_file_is_read_when_the_old_one_is_refused(
    stub: Any, tmp_path: Path, kubeconfig: Write
) -> None:
    token, config = tmp_path / "token", kubeconfig(tmp_path / "config", ("here", stub.url, "team"))
    token.write_text("old")
    content = yaml.safe_load(config.read_text())
    content["users"][0]["user"] = {"tokenFile": str(token)}
    config.write_text(yaml.safe_dump(content))
    cluster = connect(config)
    stub.fail(401, "Unauthorized")
    with pytest.raises(Unauthorized):  # the file has no other
        cluster.get(POD, "a", "team")
    token.write_text("new")
    stub.fail(401, "Unauthorized")
    stub.answer({"metadata": {"name": "a"}})
    stub.answer({"metadata": {"name": "a"}})
    cluster.get(POD, "a", "team")
    cluster.get(POD, "a", "team")
    for _ in range(4):
        stub.answers.put(partial(_renewing_again, token))
    with pytest.raises(Unauthorized):  # others every time, none that is taken
        cluster.get(POD, "a", "team")
    sent = [asked.headers["authorization"] for asked in stub.asked]
    assert sent[:4] == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]
    assert sent[4:] == ["Bearer new", "Bearer newer", "Bearer newerer", "Bearer newererer"]


@pytest.mark.parametrize("user", ["", "me:s3cr%40t@"])
def test_the_proxy_of_the_kubeconfig_comes_before_that_of_the_environment(
    stub: Any, tmp_path: Path, kubeconfig: Write, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "*")
    config = kubeconfig(tmp_path / "config", ("there", "http://api.invalid", "team"))
    content = yaml.safe_load(config.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = stub.url.replace("://", f"://{user}")
    config.write_text(yaml.safe_dump(content))
    stub.answer({"metadata": {"name": "a"}})
    cluster = connect(config)
    assert cluster.get(POD, "a", "team")["metadata"]["name"] == "a"
    assert stub.asked[0].headers["host"] == "api.invalid"
    assert ("proxy-authorization" in stub.asked[0].headers) is bool(user)
    stub.answer(b"me:s3cr@t is not welcome here", 502)
    with pytest.raises(ApiError) as refused:
        cluster.get(POD, "a", "team")
    assert not user or "s3cr" not in str(refused.value)


def _renewing_again(token: Path, handler: Any) -> None:
    token.write_text(token.read_text() + "er")
    handler.send_response(401)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.parametrize("meanwhile", ["missing", "empty"])
def test_a_plugin_that_fails_for_a_moment_does_not_make_requests_anonymous(
    meanwhile: str, stub: Any, tmp_path: Path, kubeconfig: Write
) -> None:
    """The Python client then goes on without a token; a cluster answers that with 403, which no renewal follows."""
    token, plugin = tmp_path / "token", tmp_path / "plugin"
    token.write_text("first")
    plugin.write_text(
        "#!/bin/sh\n"
        f"token=$(cat {token}) || exit 1\n"
        'echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\",'
        ' \\"status\\": {\\"token\\": \\"$token\\"}}"\n'
    )
    plugin.chmod(0o755)
    config = kubeconfig(tmp_path / "config", ("here", stub.url, "team"))
    content = yaml.safe_load(config.read_text())
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    content["users"][0]["user"] = {"exec": command}
    config.write_text(yaml.safe_dump(content))
    cluster = connect(config)
    if meanwhile == "missing":
        token.unlink()
    else:  # as a file is while it is being written
        token.write_text("")
    stub.fail(401, "Unauthorized")
    with pytest.raises(Unauthorized):
        cluster.get(POD, "a", "team")
    token.write_text("second")
    stub.fail(401, "Unauthorized")
    stub.answer({"metadata": {"name": "a"}})
    cluster.get(POD, "a", "team")
    assert [asked.headers.get("authorization") for asked in stub.asked] == ["Bearer first", "Bearer first", "Bearer second"]


def test_the_token_of_a_pod_is_read_again_when_the_old_one_is_refused(
    stub: Any, in_a_pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A projected token: the kubelet replaces the file before it expires."""
    load = config.load_incluster_config

    def load_for_stub(client_configuration: client.Configuration) -> None:
        load(client_configuration=client_configuration)
        renew = client_configuration.refresh_api_key_hook

        def renew_for_stub(renewed: client.Configuration) -> None:
            renew(renewed)
            renewed.host = stub.url

        client_configuration.refresh_api_key_hook = renew_for_stub
        client_configuration.host = stub.url

    monkeypatch.setattr(config, "load_incluster_config", load_for_stub)
    cluster = connect()
    assert cluster.origin == "in-cluster"
    stub.fail(401, "Unauthorized")
    (in_a_pod / "token").write_text("pod-token-2")
    stub.answer({"metadata": {"name": "a"}})
    cluster.get(POD, "a", "team")
    assert [asked.headers["authorization"].lower() for asked in stub.asked] == ["bearer pod-token", "bearer pod-token-2"]


@pytest.mark.parametrize("is_new_file", [True, False], ids=["another-file", "replaced-in-place"])
def test_a_client_certificate_that_was_renewed_gets_new_connections(stub: Any, tmp_path: Path, is_new_file: bool) -> None:
    def certificate(name: str) -> client.Configuration:
        path = tmp_path / f"{name}.crt"
        path.write_text("any")
        configuration = client.Configuration(host=stub.url)
        configuration.cert_file = str(path)
        return configuration

    current = certificate("first")
    os.utime(current.cert_file, (1, 1))
    cluster = KubernetesCluster(current, renew=lambda: current)
    before = cluster._connection._client
    stub.fail(401, "Unauthorized")
    with pytest.raises(Unauthorized):  # the same certificate
        cluster.get(POD, "a", "team")
    assert cluster._connection._client is before
    current = certificate("second" if is_new_file else "first")
    stub.fail(401, "Unauthorized")
    stub.answer({"metadata": {"name": "a"}})
    cluster.get(POD, "a", "team")
    assert cluster._connection._client is not before
    assert cluster._connection._client.configuration is current
