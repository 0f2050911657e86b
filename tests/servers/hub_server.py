"""A Hugging Face Hub on loopback, as far as its clients ask: repositories of files, pinned by commit, served by range.

Faults are scripted: files that are cut, delayed, truncated or replaced, error statuses, and redirects whose signature expires.
As a program, it serves a folder: `hub_server.py FOLDER` prints its address.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|xet-read-token)/(.+))?")
_FILE = re.compile(r"(/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Repository:
    """`commits` by revision; the files of a commit by path. Large files are those of `lfs`."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    lfs: tuple[str, ...] = (".safetensors", ".parquet")
    token: str = ""
    """Without it the repository is not there (private)."""
    gated: bool = False
    """Its facts can be read by all, its files by nobody."""
    redirects_to: str = ""
    """The address of the server that large files are redirected to, with a signature."""
    xet: dict[str, str] = field(default_factory=dict)
    """The xet hashes of files that are served by xet, too, by path."""
    xet_store: str = ""
    """The address of the store for them, which the hub gives with a token."""

    def push(self, files: dict[str, bytes], branch: str = "main") -> str:
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit


@dataclass
class Fault:
    """What happens to an answer: a status instead of it, fewer bytes than announced, another announced length, a pause."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    announced: int | None = None
    before: Callable[[], None] | None = None
    during: Callable[[int], None] | None = None
    """Called with the bytes sent so far, before every 64 KiB."""
    drops: bool = False
    """The connection is closed after the answer, without a word of it."""


class FileServer:
    """Serves `files` by path, by range unless `ranges` is off; `etags` replaces their ETags; over TLS with a context.

    `faults` is asked for every GET of a file with its path and the number of earlier ones. `sent` counts bytes of bodies by path.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.ranges = True
        self.chunked = False
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.sent: dict[str, int] = {}
        self.faults: Callable[[str, int], Fault | None] = lambda _path, _count: None
        self.clients: set[tuple[str, int]] = set()
        """Addresses of all connections."""
        self.signatures: set[str] = set()
        """If any, a request needs one of them in its query."""
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def do_GET(self) -> None:
                owner.serve(self)
                if owner.closes:
                    self.close_connection = True

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.closes = False

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                """A client that gives up in the middle is part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http{'s' if context is not None else ''}://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        path, headers = unquote(urlsplit(handler.path).path), {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            self.headers.append(headers)
            self.clients.add(handler.client_address)
            self.asked.append(f"{handler.command} {path}")
        status, answer, body = self.answer(handler.command, handler.path, headers)
        self.send(handler, path, status, answer, body)

    def send(self, handler: BaseHTTPRequestHandler, path: str, status: int, headers: dict[str, str], body: bytes) -> None:
        fault = self._fault(path) if status in (200, 206) and handler.command == "GET" else Fault()
        if fault.before is not None:
            fault.before()
        if fault.status:
            status, headers, body = fault.status, fault.headers, b""
        handler.send_response(status)
        is_chunked = self.chunked and status == 200
        framing = {"Transfer-Encoding": "chunked"} if is_chunked else {"Content-Length": str(fault.announced or len(body))}
        for name, value in {**framing, **headers}.items():
            handler.send_header(name, value)
        if self.closes:
            handler.send_header("Connection", "close")  # so that a server that was stopped answers nobody
        handler.end_headers()
        if handler.command != "GET":
            return
        length = 1 << 16 if fault != Fault() or is_chunked else 1 << 20
        for start in range(0, len(body), length):
            piece = memoryview(body)[start : start + length]
            if fault.during is not None:
                handler.wfile.flush()
                fault.during(start)
            if fault.cut_after is not None:
                piece = piece[: max(0, fault.cut_after - start)]
            with self._lock:  # before the client has it, and looks here
                self.sent[path] = self.sent.get(path, 0) + len(piece)
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if is_chunked and piece else piece)
        handler.wfile.flush()
        if fault.cut_after is not None or fault.announced is not None or fault.drops:
            handler.close_connection = True
        elif is_chunked:
            handler.wfile.write(b"0\r\n\r\n")

    def answer(self, method: str, target: str, headers: dict[str, str]) -> Answer:
        """Return the answer to a request: of a file here, of a hub in the subclass."""
        parts = urlsplit(target)
        if self.signatures and not self.signatures & set(parse_qs(parts.query).get("signature", ())):
            return 403, {}, b"expired"
        content = self.files.get(unquote(parts.path))
        if content is None:
            return 404, {}, b""
        etag = self.etags.get(unquote(parts.path), f'"{hashlib.sha256(content).hexdigest()}"')
        return self.ranged(content, headers, {"ETag": etag} if etag else {})

    def ranged(self, content: bytes, headers: dict[str, str], answer: dict[str, str]) -> Answer:
        match = _RANGE.fullmatch(headers.get("range", "")) if self.ranges else None
        if match is None:
            return 200, answer, content
        first, last = int(match[1]), int(match[2] or len(content) - 1)
        if first >= len(content):
            return 416, {**answer, "Content-Range": f"bytes */{len(content)}"}, b""
        part = content[first : last + 1]
        return 206, {**answer, "Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"}, part

    def _fault(self, path: str) -> Fault:
        with self._lock:
            count = self._counts.get(path, 0)
            self._counts[path] = count + 1
        return self.faults(path, count) or Fault()


class HubServer(FileServer):
    """`repositories` by kind and name, as `datasets/org/name`; `asked` lists the requests; `served` replaces bytes on the way."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.repositories: dict[str, Repository] = {}
        self.served: dict[str, bytes] = {}
        self.broken = False
        self.page = 1000
        """Files in one page of a listing."""
        super().__init__(context)
        self.closes = True

    def repository(self, name: str) -> Repository:
        return self.repositories.setdefault(name, Repository())

    def downloads(self) -> list[str]:
        """Names of the files whose contents were fetched."""
        return [line.rpartition("/")[2] for line in self.asked if line.startswith("GET") and "/resolve/" in line]

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        if urlsplit(handler.path).path == "/api/agent-harnesses":  # asked once a day by every client of the official library
            self.send(handler, "", 404, {}, b"")
        else:
            super().serve(handler)

    def answer(self, method: str, target: str, headers: dict[str, str]) -> Answer:
        parts = urlsplit(target)
        path = unquote(parts.path)
        headers = {name.lower(): value for name, value in headers.items()}
        if self.broken:
            return 501, {}, b""
        if match := _API.fullmatch(path):
            kind, name, what = match.group(1, 2, 3)
            # An encoded slash is part of the revision, a literal one ends it.
            encoded = parts.path.partition(f"/{what}/")[2] if what else "main"
            return self._api(kind, name, what, encoded or "main", parse_qs(parts.query), headers)
        if match := _FILE.fullmatch(path):
            kind = "datasets" if match[1] else "models"
            return self._file(kind, match[2], match[3], match[4], headers)
        return super().answer(method, target, headers)

    def _api(
        self, kind: str, name: str, what: str | None, encoded: str, query: dict[str, list[str]], headers: dict[str, str]
    ) -> Answer:
        repository = self._readable(f"{kind}/{name}", headers)
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        first, _, rest = encoded.partition("/")
        revision, folder = unquote(first), unquote(rest)
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        files = repository.commits[commit]
        entries: list[dict[str, Any]] = [_entry(path, files[path], repository) for path in sorted(files)]
        if what == "xet-read-token":
            return (
                200,
                {"X-Xet-Cas-Url": repository.xet_store, "X-Xet-Access-Token": "x", "X-Xet-Token-Expiration": "9999999999"},
                b"",
            )
        if what == "tree":
            return self._tree(f"/api/{kind}/{name}/tree/{encoded}", entries, folder, query)
        siblings = [
            {
                "rfilename": entry["path"],
                "size": entry["size"],
                "blobId": entry["oid"],
                **({"lfs": {"sha256": entry["lfs"]["oid"], "size": entry["size"], "pointerSize": 130}} if "lfs" in entry else {}),
            }
            for entry in entries
        ]
        return _json({"_id": "1", "id": name, "sha": commit, "private": False, "gated": repository.gated, "siblings": siblings})

    def _tree(self, address: str, entries: list[dict[str, Any]], folder: str, query: dict[str, list[str]]) -> Answer:
        if folder:
            entries = [entry for entry in entries if entry["path"].startswith(f"{folder}/")]
            if not entries:
                return 404, {"X-Error-Code": "EntryNotFound"}, b""
        if query.get("recursive") == ["false"]:
            entries = [entry for entry in entries if "/" not in entry["path"][len(folder) + bool(folder) :]]
        start = int(query.get("cursor", ["0"])[0])
        status, headers, body = _json(entries[start : start + self.page])
        if start + self.page < len(entries):
            recursive = query.get("recursive", ["false"])[0]
            # As behind a mirror: the address of the next page is that of the original.
            following = f"https://huggingface.invalid{address}?recursive={recursive}&cursor={start + self.page}"
            headers["Link"] = f'<{following}>; rel="next"'
        return status, headers, body

    def _file(self, kind: str, name: str, commit: str, path: str, headers: dict[str, str]) -> Answer:
        repository = self._readable(f"{kind}/{name}", headers)
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if repository.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        content = repository.commits[repository.branches.get(commit, commit)].get(path)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        entry = _entry(path, content, repository)
        if repository.redirects_to and "lfs" in entry:
            location = f"{repository.redirects_to}/{quote(path)}"
            return 302, {"Location": location, "X-Linked-Size": str(len(content))}, b""
        content = self.served.get(path, content)
        etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
        answer = {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if path in repository.xet:
            refresh = f"{self.url}/api/{kind}/{name}/xet-read-token/{commit}"
            answer |= {"X-Xet-Hash": repository.xet[path], "X-Xet-Refresh-Route": refresh, "X-Linked-Size": str(len(content))}
        return self.ranged(content, headers, answer)

    def _readable(self, name: str, headers: dict[str, str]) -> Repository | None:
        repository = self.repositories.get(name)
        return repository if repository and headers.get("authorization", "").endswith(repository.token) else None


@functools.lru_cache(maxsize=1000)
def _digests(content: bytes) -> tuple[str, str]:
    """Git's SHA-1 and the SHA-256: a large file is requested many times."""
    sha1 = hashlib.sha1(b"blob %d\0" % len(content))
    sha1.update(content)
    return sha1.hexdigest(), hashlib.sha256(content).hexdigest()


def _entry(path: str, content: bytes, repository: Repository) -> dict[str, Any]:
    oid, sha256 = _digests(content)
    entry: dict[str, Any] = {"type": "file", "oid": oid, "size": len(content), "path": path}
    if path in repository.xet:
        entry["xetHash"] = repository.xet[path]
    if path.endswith(repository.lfs):
        entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
    return entry


def _json(value: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


if __name__ == "__main__":
    server = HubServer()
    server.closes, server.page = False, sys.maxsize
    root = Path(sys.argv[1])
    repository = server.repository("models/org/model")
    repository.branches["main"] = "0" * 40
    repository.commits["0" * 40] = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }
    for content in repository.commits["0" * 40].values():
        _digests(content)
    print(server.url, flush=True)
    sys.stdin.read()
