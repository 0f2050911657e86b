"""A client of the page's application in this process, with a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx

from trainwright.cluster.protocol import Cluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.access import LinkLogin
from trainwright.ui.app import PageApp
from trainwright.ui.call import Page
from trainwright.ui.links import Links, make_code

KEY = b"k" * 32
HOSTS = frozenset({"127.0.0.1"})


class PageClient:
    """Requests to an application; `token` is that of its session."""

    def __init__(self, app: PageApp, token: str = ""):
        self.app, self.token = app, token

    def request(
        self, method: str, path: str, *, body: Any = None, headers: dict[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        """Send a request below `/ui/`."""
        sent = {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **(headers or {})}
        content = None if body is None else json.dumps(body)
        if body is not None:
            sent.setdefault("Content-Type", "application/json")

        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1:1") as client:
                return await client.request(method, f"/ui/{path}", content=content, headers=sent, **more)

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", f"api/{path}", **more)

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return self.request("POST", f"api/{path}", body=body, **more)


def page_client(cluster: Cluster, page: Page | None = None) -> PageClient:
    """Return a client with a session on a cluster."""
    app = PageApp(LinkLogin(Links(KEY), lambda: JobsClient.of(cluster)), page or Page(may_read_files=True), hosts=HOSTS)
    opened = PageClient(app).post("session", {"code": make_code(KEY)})
    assert opened.status_code == 200, opened.text
    return PageClient(app, opened.json()["session"])


async def first_messages(app: PageApp, path: str, token: str, is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Read a stream until a message is the last one that a test wants. The stream is then left, as a browser leaves it."""
    messages: list[dict[str, Any]] = []
    done, left = asyncio.Event(), asyncio.Event()
    rest = b""

    async def receive() -> dict[str, Any]:
        if not left.is_set():
            left.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal rest
        *lines, rest = (rest + message.get("body", b"")).split(b"\n")
        messages.extend(json.loads(line) for line in lines if line)
        if messages and is_last(messages[-1]):
            done.set()

    query = path.partition("?")[2].encode()
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/ui/api/{path.partition('?')[0]}",
        "raw_path": b"",
        "query_string": query,
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())],
        "scheme": "http",
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
        "http_version": "1.1",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }
    await asyncio.wait_for(app(scope, receive, send), 20)  # type: ignore[arg-type]
    return messages
