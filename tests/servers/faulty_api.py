"""A proxy between a client and an API server that answers some requests wrongly, as a seed says, and that can hide Trainer's API.

What a request meets follows from the seed, its kind and how many of that kind came before it, so that a seed can be run again.
"""

from __future__ import annotations

import base64
import http.client
import random
import select
import socket
import ssl
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import yaml

MOST_FAULTS = 10
"""After so many the API is well: a schedule ends."""
_SHARE, _SHARE_OF_WATCHES = 0.35, 0.8
"""Of requests that meet a fault; a job has few watches."""
_SHORT = ("429", "429-after", "429-date", "500", "500-text", "503", "reset-before", "reset-after", "cut", "slow", "skew", "token")
QUOTA = (
    'trainjobs.trainer.kubeflow.org "job" is forbidden: exceeded quota: q, requested: count/trainjobs.trainer.kubeflow.org=1, '
    "used: count/trainjobs.trainer.kubeflow.org=0, limited: count/trainjobs.trainer.kubeflow.org=0"
)
"""As a real cluster says it: ../shared/goldens/failures/cases/quota-trainjobs."""
FAULTS = {
    "create": _SHORT,
    "get": _SHORT,
    "list": (*_SHORT, "410"),
    "list-jobs": (*_SHORT, "410", "stale", "stale"),
    "watch": (
        "503",
        "reset-before",
        "reset-after",
        "slow",
        "410",
        "410-event",
        "silent",
        "silent",
        "duplicate",
        "again",
        "closed",
    ),
    "log": _SHORT,
    "other": _SHORT,
}


class FaultyApi:
    """The proxy. `kubeconfig` is the client's way through it; `met` tells which faults it met, in order. A seed below 0 has none.

    `jobset_only`: as a cluster that has JobSet, and of Trainer nothing.
    """

    def __init__(self, folder: Path, upstream: Path, seed: int, *, jobset_only: bool = False) -> None:
        self.seed, self.jobset_only = seed, jobset_only
        self.met: list[str] = []
        self.held: Callable[[str, str], None] = lambda _when, _what: None
        """Called with `before` and `after` and the kind of every request that is forwarded."""
        self._lock, self._seen = threading.Lock(), Counter[str]()
        self._lists: dict[str, bytes] = {}
        self._server_of(upstream)
        self._token, self._token_file = 0, folder / f"token-{seed}"
        self._write_token()
        proxy = self

        class Handler(_Handler):
            api = proxy

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.kubeconfig = folder / f"kubeconfig-{seed}"
        self.kubeconfig.write_text(yaml.safe_dump(self._config(self._http.server_address[1])))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, name=f"proxy-{seed}")
        self._thread.start()

    def __enter__(self) -> FaultyApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def fault_for(self, kind: str) -> str:
        """The fault that this request meets; empty for none."""
        with self._lock:
            self._seen[kind] += 1
            share = _SHARE_OF_WATCHES if kind == "watch" else _SHARE
            chance = random.Random(f"{self.seed}/{kind}/{self._seen[kind]}")
            if self.seed < 0 or len(self.met) >= MOST_FAULTS or chance.random() > share:
                return ""
            fault = chance.choice(FAULTS[kind])
            self.met.append(f"{kind} {self._seen[kind]}: {fault}")
            return fault

    def accepts(self, authorization: str) -> bool:
        return authorization == f"Bearer token-{self._token}"

    def new_token(self) -> None:
        """The old one is refused from now on; the file has the new one already."""
        self._token += 1
        self._write_token()

    def older(self, path: str, answer: bytes) -> bytes:
        """The first answer to that list, or, the first time, the list as it was before anything was there."""
        with self._lock:
            known = self._lists.setdefault(path, answer)
        if known is not answer:
            return known
        listed = orjson.loads(answer)
        versions = [int(item["metadata"]["resourceVersion"]) for item in listed.get("items") or []]
        before = max(min([int(listed["metadata"]["resourceVersion"]), *versions]) - 1, 1)
        return orjson.dumps({**listed, "items": [], "metadata": {"resourceVersion": str(before)}})

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=60)

    def _server_of(self, upstream: Path) -> None:
        config = yaml.safe_load(upstream.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        url = urlsplit(cluster["server"])
        self._host, self._port, self.upstream_token = str(url.hostname), int(url.port or 443), str(user["token"])
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode("ascii"))

    def _write_token(self) -> None:
        aside = self._token_file.with_suffix(".new")
        aside.write_text(f"token-{self._token}")
        aside.replace(self._token_file)

    def _config(self, port: int) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "faulty",
            "clusters": [{"name": "faulty", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "me", "namespace": "default"}}],
            "users": [{"name": "me", "user": {"tokenFile": str(self._token_file)}}],
        }


class ScriptedApi(FaultyApi):
    """The proxy with given faults: the creates meet them in this order, then the API is well."""

    def __init__(self, folder: Path, upstream: Path, *creates: str, jobset_only: bool = False) -> None:
        self._creates = list(creates)
        super().__init__(folder, upstream, -1, jobset_only=jobset_only)

    def fault_for(self, kind: str) -> str:
        if kind != "create" or not self._creates:
            return ""
        self.met.append(f"create: {self._creates[0]}")
        return self._creates.pop(0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.closing = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError | http.client.HTTPException):  # either side hangs up: what is tested
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: FaultyApi
    server: _Server

    def log_message(self, *_: Any) -> None:
        pass

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = _kind_of(self.command, self.path)
        fault = self.api.fault_for(kind)
        if fault == "token":
            self.api.new_token()
        if not self.api.accepts(self.headers.get("Authorization", "")):
            self._status(401, "Unauthorized")
        elif self.api.jobset_only and "trainer.kubeflow.org" in self.path:
            self._status(404, "NotFound")
        elif fault == "quota":
            self._status(403, "Forbidden", message=QUOTA)
        elif fault == "reset-before":
            self._reset()
        elif fault.startswith("429"):
            after = {"429-after": "1", "429-date": "Wed, 21 Oct 2065 07:28:00 GMT"}.get(fault)
            self._status(429, "TooManyRequests", retry_after=after)
        elif fault in ("403", "500", "503"):
            self._status(int(fault), {"403": "Forbidden", "500": "InternalError", "503": "ServiceUnavailable"}[fault])
        elif fault == "500-text":
            self._answer(500, b"<html>upstream connect error</html>", {"Content-Type": "text/html"})
        elif fault == "410":
            self._status(410, "Expired")
        else:
            self._forward(kind, fault, body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815

    def _forward(self, kind: str, fault: str, body: bytes) -> None:
        connection = self.api.connection()
        try:
            self.api.held("before", kind)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "authorization", "accept-encoding")}
            headers["Authorization"] = f"Bearer {self.api.upstream_token}"
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            if kind == "watch" and answer.status == 200:
                self._stream(_changed(fault, _lines(answer)), fault)
            elif kind == "log" and answer.status == 200 and fault not in ("reset-after", "cut"):
                self._stream(iter(lambda: answer.read1(65536), b""), fault)
            else:
                self._whole(kind, fault, answer)
        finally:
            connection.close()

    def _whole(self, kind: str, fault: str, answer: http.client.HTTPResponse) -> None:
        content = answer.read()
        self.api.held("after", kind)
        if fault == "reset-after":
            self._reset()
            return
        if kind == "list-jobs" and answer.status == 200:
            older = self.api.older(self.path, content)
            content = older if fault == "stale" else content
        if fault == "slow":
            self.server.closing.wait(0.7)
        headers = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
        if fault == "skew":
            headers["Date"] = "Mon, 01 Jan 1990 00:00:00 GMT"
        self._answer(answer.status, content, headers, cut=fault == "cut")

    def _stream(self, pieces: Iterator[bytes], fault: str) -> None:
        self._head(200, {"Transfer-Encoding": "chunked", "Content-Type": "application/json"})
        self.wfile.flush()
        if fault == "slow":
            self.server.closing.wait(0.7)
        for number, piece in enumerate(pieces):
            if fault in ("reset-after", "cut") and number:
                self._reset()
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if fault == "closed":
                break
            if fault == "silent":
                self._until_the_client_leaves()
                return
        self.wfile.write(b"0\r\n\r\n")

    def _until_the_client_leaves(self) -> None:
        self.close_connection = True
        while not self.server.closing.is_set():
            if select.select([self.connection], [], [], 0.05)[0] and not self.connection.recv(1):
                return

    def _status(self, code: int, reason: str, message: str = "a fault", retry_after: str | None = None) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message}
        headers = {"Retry-After": retry_after} if retry_after else {}
        self._answer(code, orjson.dumps(status), {"Content-Type": "application/json", **headers})

    def _answer(self, code: int, content: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
        self._head(code, {**headers, "Content-Length": str(len(content))})
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut

    def _head(self, code: int, headers: dict[str, str]) -> None:
        self.send_response_only(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _reset(self) -> None:
        """Close so that the peer sees a reset, not an end."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_RD)
        self.connection.close()


def _kind_of(method: str, path: str) -> str:
    parts = urlsplit(path)
    if method != "GET":
        is_review = "/authorization.k8s.io/" in path  # it creates nothing
        return "create" if method == "POST" and not is_review else "other"
    if parse_qs(parts.query).get("watch") == ["true"]:
        return "watch"
    *_, before, last = parts.path.split("/")
    if last == "log":
        return "log"
    if last in ("trainjobs", "jobsets"):
        return "list-jobs"
    return "list" if before == "default" or last in ("nodes", "clustertrainingruntimes") else "get"


def _lines(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    while line := answer.readline():
        yield line


def _changed(fault: str, events: Iterator[bytes]) -> Iterator[bytes]:
    """The events of a watch, told wrongly."""
    first = b""
    if fault == "410-event":
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "Expired",
            "code": 410,
            "message": "too old",
        }
        yield orjson.dumps({"type": "ERROR", "object": status}) + b"\n"
        return
    for event in events:
        yield event
        if fault == "duplicate":
            yield event
        if fault == "again" and first:
            yield first  # one that is older than what has just been told
        first = first or event
