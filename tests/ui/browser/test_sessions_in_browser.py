"""Sessions in a browser: one-time links, tabs, the end of a session, and users of the cluster with few rights.

The network log of the browser shows that no secret is part of an address, that nothing leaves the page's origin, and that no cookie is
set.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from factories import trainjob
from support.browser import FORGET, Browser, browser
from support.cluster_under_test import embedded
from support.page_cluster import PageCluster
from support.page_server import PageServer, serving
from support.waiting import eventually

from trainwright.api.kinds import SERVICE_ACCOUNT, TRAINJOB
from trainwright.api.objects import Obj
from trainwright.cluster.connect import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.submission.connect import for_jobs
from trainwright.ui.access import TokenLogin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ENDED = "The session has ended."
ONCE = "This page is opened by a link that works once"
_RBAC = "rbac.authorization.k8s.io"
_TOKEN = "return sessionStorage.getItem('trainwright.session')"


@pytest.fixture(scope="module")
def server(cluster: PageCluster) -> Iterator[PageServer]:
    with serving(cluster) as running:
        yield running


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """An embedded cluster with one job, a reader of TrainJobs in `default`, and an account without rights."""
    with embedded(tmp_path_factory.mktemp("cluster"), node=False) as kubeconfig:
        connected = connect(kubeconfig)
        connected.create(trainjob("demo"))
        for account in ("reader", "nobody"):
            about = {"name": account, "namespace": "default"}
            connected.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
        rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["get", "list", "watch"]}]
        about = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": "reader", "namespace": "default"}}
        reference = {"apiGroup": _RBAC, "kind": "Role", "name": "reader"}
        subjects = [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]
        bodies: list[Obj] = [{**about, "kind": "Role", "rules": rules}]
        bodies += [{**about, "kind": "RoleBinding", "roleRef": reference, "subjects": subjects}]
        for body in bodies:
            connected.request("post", f"/apis/{_RBAC}/v1/namespaces/default/{body['kind'].lower()}s", body)
        yield connected


@pytest.fixture(scope="module")
def token_server(admin: KubernetesCluster) -> Iterator[PageServer]:
    login = TokenLogin(lambda token: for_jobs(admin.with_token(token)))
    with serving(admin, login=login) as running:
        yield running


@pytest.fixture
def window() -> Iterator[Browser]:
    """A browser that has no session and no history."""
    with browser(logs=("browser", "performance")) as opened:
        opened.open("about:blank")
        opened.traffic()  # of the browser's own start page
        yield opened


def token_of(admin: KubernetesCluster, account: str) -> str:
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answered = admin.request("post", f"{SERVICE_ACCOUNT.path('default', account)}/token", asked)
    return str(answered["status"]["token"])


def log_in(window: Browser, server: PageServer, token: str) -> None:
    window.open(server.url)
    window.type("input[name=token]", token)
    window.click("Log in")
    window.wait_for("TrainJobs", "Log out")


def requests_in(traffic: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["request"] for each in traffic if each["event"] == "Network.requestWillBeSent"]


def cookies_in(traffic: list[dict[str, Any]]) -> list[str]:
    """The headers of requests and responses that have to do with cookies."""
    headers = [name.lower() for each in traffic for name in (each.get("headers") or {})]
    return [name for name in headers if name in ("cookie", "set-cookie")]


def end_elsewhere(server: PageServer, token: str) -> None:
    """End a session without the browser."""
    asked = urllib.request.Request(f"{server.url}api/session", method="DELETE", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=10) as answered:
        assert answered.status == 200


def test_a_link_opens_one_session_and_leaves_no_trace(window: Browser, server: PageServer) -> None:
    link = server.link()
    code = link.partition("#code=")[2]
    window.open(link)
    window.wait_for("TrainJobs", "live", "demo")
    assert window.script("return location.hash") == ""
    window.click("Runs")
    window.click("Models")
    history = window.driver.execute_cdp_cmd("Page.getNavigationHistory", {})
    assert not any(code in entry["url"] for entry in history["entries"])
    token = window.script(_TOKEN)
    traffic = window.traffic()
    requests = requests_in(traffic)
    addresses = [request["url"] for request in requests]
    assert sum(address.endswith("/api/session") for address in addresses) == 1
    assert not any(code in address or token in address for address in addresses)
    assert not any(code in str(request.get("headers")) for request in requests)
    assert {address.split("/ui/")[0] for address in addresses} == {server.url.split("/ui/")[0]}
    assert cookies_in(traffic) == []
    assert window.driver.get_cookies() == []
    assert window.script("return localStorage.length === 1 && localStorage.getItem('trainwright.theme') === 'system'")
    assert window.messages() == []


def test_a_reload_and_a_new_tab_keep_the_session(window: Browser, server: PageServer) -> None:
    server.enter(window)
    window.driver.refresh()
    window.wait_for("TrainJobs", "live", "demo")
    token = window.script(_TOKEN)
    window.driver.switch_to.new_window("tab")
    window.open(f"{server.url}#/jobs/default/demo")
    window.wait_for("Conditions", "live")
    assert window.script(_TOKEN) == token


def test_a_second_use_of_a_link_says_how_to_get_another(window: Browser, server: PageServer) -> None:
    link = server.link()
    window.open(link)
    window.wait_for("TrainJobs", "live")
    window.script(FORGET)
    window.open("about:blank")
    window.open(link)
    window.wait_for(ONCE, "run `trainwright ui` for a new one", "Unauthorized")
    assert window.script("return location.hash") == ""


def test_a_new_link_in_the_tab_of_an_old_page_opens_it(window: Browser, server: PageServer) -> None:
    """The browser only changes the fragment: it does not load the page again."""
    window.open(server.url)
    window.wait_for(ONCE)
    window.open(server.link())
    window.wait_for("TrainJobs", "live", "demo")
    assert window.script("return location.hash") == ""
    window.open(server.link())
    eventually(lambda: window.script("return location.hash") == "", 10, "the code to leave the address")
    window.wait_for("TrainJobs", "live", "demo")


def test_an_open_page_says_that_its_session_has_ended(window: Browser, server: PageServer, cluster: PageCluster) -> None:
    server.enter(window)
    window.open(f"{server.url}#/jobs/default/demo")
    window.wait_for("Conditions", "live")
    end_elsewhere(server, window.script(_TOKEN))
    cluster.report("demo", 3, loss="1.0")  # a change of the job, which this session must not see
    window.wait_for(ENDED, ONCE)
    assert window.script(_TOKEN) is None
    assert "3 %" not in window.text()


def test_an_action_after_the_end_of_the_session_is_refused(window: Browser, server: PageServer, cluster: PageCluster) -> None:
    server.enter(window)
    window.open(f"{server.url}#/jobs/default/demo")
    window.wait_for("Conditions", "live")
    window.click("Stop for good")
    window.wait_for("TrainJob default/demo")
    end_elsewhere(server, window.script(_TOKEN))
    window.script("[...document.querySelectorAll('dialog button')].at(-1).click()")
    window.wait_for(ENDED)
    assert "deletionTimestamp" not in cluster.get(TRAINJOB, "demo", "default")["metadata"]


def test_logging_out_ends_the_session_in_all_tabs(window: Browser, token_server: PageServer, admin: KubernetesCluster) -> None:
    token = token_of(admin, "reader")
    log_in(window, token_server, token)
    assert token not in str(window.script("return JSON.stringify([{...localStorage}, {...sessionStorage}, location.href])"))
    first = window.driver.current_window_handle
    window.driver.switch_to.new_window("tab")
    window.open(f"{token_server.url}#/jobs/default/demo")
    window.wait_for("Conditions", "live")
    session = window.script(_TOKEN)
    window.click("Log out")
    window.wait_for("Token of the cluster")
    window.driver.switch_to.window(first)
    window.wait_for("Token of the cluster")
    window.script("sessionStorage.setItem('trainwright.session', arguments[0]); location.reload()", session)
    window.wait_for("Token of the cluster")  # the server has ended it, too


def test_a_reader_sees_its_jobs_and_is_told_the_rest(window: Browser, token_server: PageServer, admin: KubernetesCluster) -> None:
    token = token_of(admin, "reader")
    log_in(window, token_server, token)
    window.wait_for("demo", "live", "system:serviceaccount:default:reader")
    window.click("demo")
    window.wait_for("Conditions", "Pods cannot be read", "Events cannot be read")
    refused = "you may not patch trainjobs.trainer.kubeflow.org in the namespace default"
    window.wait_for(refused)
    buttons = window.script(
        "return [...document.querySelectorAll('.actions button')].map(each => [each.getAttribute('aria-disabled'), each.title])"
    )
    assert len(buttons) == 3
    assert all(disabled == "true" and reason for disabled, reason in buttons)
    window.click("Suspend")
    assert window.count("dialog") == 0
    for route, words in (
        ("/jobs/default/demo/logs", "may not"),
        ("/jobs/default/demo/objects", "may not"),
        ("/runs", "This page runs in a cluster, and reads no workspaces"),
        ("/models", "Models"),
        ("/new", "This page runs in the cluster: it writes text, and starts nothing."),
    ):
        window.script("location.hash = arguments[0]", f"#{route}")
        eventually(lambda words=words: words in window.text() or "forbidden" in window.text().lower(), 20, f"{words} on {route}")
        assert "This view has failed" not in window.text()
    window.click("Log out")
    window.wait_for("Token of the cluster")
    traffic = window.traffic()
    assert {request["url"].split("/ui/")[0] for request in requests_in(traffic)} == {token_server.url.split("/ui/")[0]}
    bodies = [request for request in requests_in(traffic) if token in request.get("postData", "")]
    assert [request["url"].partition("/ui/")[2] for request in bodies] == ["api/session"]
    assert not any(token in str(request.get("headers")) or token in request["url"] for request in requests_in(traffic))
    assert cookies_in(traffic) == []


def test_an_account_without_rights_is_told_so(window: Browser, token_server: PageServer, admin: KubernetesCluster) -> None:
    log_in(window, token_server, token_of(admin, "nobody"))
    window.wait_for("cannot list")
    window.open(f"{token_server.url}#/jobs/default/demo")
    window.wait_for("cannot")
    window.click("TrainJobs")
    assert "This view has failed" not in window.text()
