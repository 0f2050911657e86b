"""Tests the application: what it serves to whom, with which headers, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from factories import trainjob
from ui.page_client import HOSTS, KEY, PageClient, first_messages, page_client

from trainwright.api.errors import Forbidden
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.app import HEADERS, IMPORT_MAP
from trainwright.ui.links import make_code
from trainwright.ui.static_files import FOLDER, MISSING, read_static_files


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[PageClient]:
    made = page_client(cluster)
    yield made
    made.app.close()


@pytest.mark.parametrize("path", ["", "style.css", "js/main.js", "vendor/uPlot.esm.js", "api/config", "api/cluster", "nothing"])
def test_every_response_has_the_security_headers(client: PageClient, path: str) -> None:
    answered = client.request("GET", path)
    assert {name: answered.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in answered.headers["Content-Security-Policy"]
    assert "set-cookie" not in answered.headers
    assert "access-control-allow-origin" not in answered.headers


def test_static_files_are_revalidated_by_their_content(client: PageClient) -> None:
    first = client.request("GET", "js/main.js")
    assert first.headers["Content-Type"] == "text/javascript; charset=utf-8"
    again = client.request("GET", "js/main.js", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", ["../app.py", "%2e%2e/app.py", "js/../../app.py", "js/%2e%2e/%2e%2e/app.py", "js", "js/"])
def test_paths_outside_the_static_files_are_not_found(client: PageClient, path: str) -> None:
    assert client.request("GET", path).status_code == 404


@pytest.mark.parametrize("path", ["cluster", "trainjobs/stream", "form", "launches"])
def test_api_needs_a_session(client: PageClient, path: str) -> None:
    for token in ("", "x", KEY.hex()):
        assert PageClient(client.app, token).get(path).status_code == 401


def test_code_opens_one_session(client: PageClient) -> None:
    code = make_code(KEY)
    assert PageClient(client.app).post("session", {"code": code}).status_code == 200
    refused = PageClient(client.app).post("session", {"code": code})
    assert refused.status_code == 401
    assert "trainwright ui" in refused.json()["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 400),
        ({"session": 1, "challenge": "a"}, 400),
        ({"session": "x", "challenge": "a\nb"}, 400),
        ({"session": "x", "challenge": "a"}, 404),
    ],
)
def test_proof_of_nothing_is_refused(client: PageClient, body: dict[str, Any], code: int) -> None:
    assert PageClient(client.app).post("proof", body).status_code == code


def test_body_that_does_not_end_is_given_up(client: PageClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.ui.app._BODY_SECONDS", 0.1)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(client.app), base_url="http://127.0.0.1:1") as sender:
            headers = {"Content-Type": "application/json"}
            return await sender.post("/ui/api/session", content=endless(), headers=headers)

    assert asyncio.run(send()).status_code == 408


def test_ended_session_is_refused(client: PageClient) -> None:
    assert client.get("cluster").status_code == 200
    assert client.request("DELETE", "api/session").status_code == 200
    assert client.get("cluster").status_code == 401


def test_other_names_of_the_host_are_refused(client: PageClient) -> None:
    assert "evil.example" not in HOSTS
    for host in ("evil.example", "127.0.0.1.evil.example", ""):
        assert client.get("config", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"{}", "text/plain", 400),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'"' + b"x" * 1_100_000 + b'"', "application/json", 413),
    ],
)
def test_bad_bodies_are_refused(client: PageClient, content: bytes, kind: str, code: int) -> None:
    import httpx

    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(client.app), base_url="http://127.0.0.1") as http:
            headers = {"Content-Type": kind, "Authorization": f"Bearer {client.token}"}
            return await http.post("/ui/api/form/check", content=content, headers=headers)

    assert asyncio.run(send()).status_code == code


def test_unknown_endpoints_and_methods_are_not_found(client: PageClient) -> None:
    assert client.get("nothing").status_code == 404
    assert client.post("cluster", {}).status_code == 404


def test_errors_of_the_cluster_keep_code_and_reason(client: PageClient, cluster: EmbeddedCluster, monkeypatch: Any) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise Forbidden("may not get trainjobs")

    monkeypatch.setattr(EmbeddedCluster, "get", forbidden)
    answered = client.get("trainjobs/default/demo/report")
    assert (answered.status_code, answered.json()) == (403, {"reason": "Forbidden", "message": "may not get trainjobs"})


def test_defects_are_logged_and_not_told(client: PageClient, monkeypatch: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise KeyError("secret value")

    monkeypatch.setattr(EmbeddedCluster, "get", broken)
    with caplog.at_level(logging.ERROR):
        answered = client.get("trainjobs/default/demo/report")
    assert answered.status_code == 500
    assert "secret" not in answered.text
    assert "page_request_failed" in caplog.text


def test_list_is_streamed_with_its_changes(client: PageClient, cluster: EmbeddedCluster) -> None:
    cluster.create(trainjob("first"))

    async def look() -> list[dict[str, Any]]:
        creating: list[Any] = []

        def is_last(message: dict[str, Any]) -> bool:
            if message["type"] == "rows":
                creating.append(asyncio.get_running_loop().run_in_executor(None, cluster.create, trainjob("second")))
            return message["type"] == "changes"

        return await first_messages(client.app, "trainjobs/stream?namespace=default", client.token, is_last)

    rows, changes = asyncio.run(look())
    assert [row["name"] for row in rows["rows"]] == ["first"]
    assert [row["name"] for row in changes["rows"]] == ["second"]


STREAM = "trainjobs/stream?namespace=default"


@pytest.mark.medium
def test_streams_of_one_user_take_none_of_others(client: PageClient, cluster: EmbeddedCluster) -> None:
    other, _ = client.app._sessions.open(JobsClient.of(cluster), "b", "key of b")

    async def look() -> tuple[int, str, dict[str, Any]]:
        reading = [asyncio.create_task(first_messages(client.app, STREAM, client.token, lambda _: False)) for _ in range(24)]
        while len(client.app.streams) < 24:
            await asyncio.sleep(0.01)
        refused = await asyncio.to_thread(client.get, STREAM)
        allowed = await first_messages(client.app, STREAM, other, lambda _: True)
        client.app.close()
        await asyncio.gather(*reading)
        return refused.status_code, refused.text, allowed[0]

    status, text, allowed = asyncio.run(look())
    assert status == 429
    assert "24 streams of this user are open" in text
    assert allowed["type"] == "rows"
    assert len(client.app._open_streams) == 0


def test_streams_that_are_opened_at_once_are_limited_too(client: PageClient) -> None:
    async def look() -> list[list[dict[str, Any]]]:
        reading = [asyncio.create_task(first_messages(client.app, STREAM, client.token, lambda _: False)) for _ in range(60)]
        while sum(each.done() for each in reading) < 36:
            await asyncio.sleep(0.01)
        client.app.close()
        return await asyncio.gather(*reading)

    found = asyncio.run(look())
    assert sum(bool(messages) and messages[0].get("type") == "rows" for messages in found) == 24


def test_closing_the_application_ends_its_streams(client: PageClient) -> None:
    async def look() -> list[dict[str, Any]]:
        reading = asyncio.create_task(first_messages(client.app, "trainjobs/stream", client.token, lambda _: False))
        while not len(client.app.streams):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # until the list was sent
        client.app.close()
        return await asyncio.wait_for(reading, 10)

    assert asyncio.run(look())[0]["type"] == "rows"
    assert len(client.app.streams) == 0


def test_scripts_and_styles_are_files_of_the_page() -> None:
    """What the content security policy would block anyway must not be there in the first place."""
    page = (FOLDER / "index.html").read_text("utf-8")
    assert "<script>" not in page
    assert "style=" not in page
    assert "http" not in page.replace("http-equiv", "")
    for path in (FOLDER / "js").rglob("*.js"):
        text = path.read_text("utf-8")
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "dangerously",
        ):
            assert forbidden not in text, path


def test_content_security_policy_allows_the_import_map_alone() -> None:
    scripts = re.findall(r"<script(?![^>]* src=)[^>]*>(.*?)</script>", (FOLDER / "index.html").read_text("utf-8"), re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert [f"'sha256-{digest}'" for digest in digests] == [IMPORT_MAP]


def test_page_without_vendored_files_says_so(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "static", ignore=shutil.ignore_patterns("vendor"))
    assert MISSING in read_static_files(tmp_path / "static")["index.html"].content.decode()
    assert MISSING not in read_static_files()["index.html"].content.decode()
