"""Tests logins: by a link as the owner, by a token as its user alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import embedded, kubeconfig_of_account
from ui.page_client import PageClient

from trainwright.api.errors import Unauthorized
from trainwright.cluster import connect
from trainwright.submission.connect import for_jobs
from trainwright.ui.access import LinkLogin, TokenLogin
from trainwright.ui.app import PageApp
from trainwright.ui.call import Page
from trainwright.ui.links import Links
from trainwright.ui.sessions import Sessions

pytestmark = pytest.mark.medium


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with embedded(tmp_path_factory.mktemp("page"), node=False) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def client(admin: Path) -> Iterator[PageClient]:
    base = connect(admin)
    app = PageApp(TokenLogin(lambda token: for_jobs(base.with_token(token))), Page())
    yield PageClient(app)
    app.close()


def token_of(admin: Path, folder: Path, account: str) -> str:
    import yaml

    admin_cluster = connect(admin)
    admin_cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": "default"}})
    found = yaml.safe_load(kubeconfig_of_account(admin, folder, "default", account).read_text("utf-8"))
    return str(found["users"][0]["user"]["token"])


def test_user_of_a_token_has_its_rights_and_no_others(client: PageClient, admin: Path, tmp_path: Path) -> None:
    token = token_of(admin, tmp_path, "viewer")
    answered = client.post("session", {"token": token})
    assert answered.status_code == 200, answered.text
    assert answered.json()["user"] == "system:serviceaccount:default:viewer"
    assert token not in answered.text
    client.token = answered.json()["session"]
    facts = client.get("cluster").json()
    assert facts["namespaces"] is None
    assert (facts["mayLaunch"], facts["mayReadFiles"]) == (False, False)
    assert client.get("trainjobs/default/demo/report").status_code == 403
    assert client.post("launches", {"parameters": {}, "run": "r", "namespace": "default"}).status_code == 403


@pytest.mark.parametrize("token", ["", "x", "a b\nc", "ü" * 10, "x" * 100_000, "eyJhbGciOiJub25lIn0.e30."])
def test_other_tokens_open_no_session(client: PageClient, token: str) -> None:
    answered = client.post("session", {"token": token})
    assert answered.status_code == 401
    assert token not in answered.json()["message"] or len(token) < 2


def test_token_client_sends_no_other_credentials(admin: Path) -> None:
    with pytest.raises(Unauthorized):
        connect(admin).with_token("not-a-token").request("GET", "/api/v1/namespaces")


def test_sessions_of_one_owner_share_their_connection() -> None:
    links, made = Links(b"k" * 32), list[Any]()

    def connect_once() -> Any:
        made.append(object())
        return made[-1]

    login, sessions = LinkLogin(links, connect_once), Sessions()
    first = login.open(sessions, {"code": links.make()})[1]
    second = login.open(sessions, {"code": links.make()})[1]
    assert first.cluster is second.cluster
    assert first.key == second.key
    assert len(made) == 1
