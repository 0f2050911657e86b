"""A Hugging Face hub on loopback, as far as its real client asks: repositories of files, pinned by commit, served by range."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_API = re.compile(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?")
_FILE = re.compile(r"(/datasets)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


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

    def push(self, files: dict[str, bytes], branch: str = "main") -> str:
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit


class HubServer:
    """`repositories` by kind and name, as `datasets/org/name`; `asked` lists the requests; `served` replaces bytes on the way."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.served: dict[str, bytes] = {}
        self.broken = False
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = hub.answer(self.command, self.path, dict(self.headers))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.send_header("Connection", "close")  # so that a hub that was stopped answers nobody
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def repository(self, name: str) -> Repository:
        return self.repositories.setdefault(name, Repository())

    def downloads(self) -> list[str]:
        """Names of the files whose contents were fetched."""
        return [line.rpartition("/")[2] for line in self.asked if line.startswith("GET") and "/resolve/" in line]

    def answer(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        path = unquote(urlsplit(target).path)
        if path == "/api/agent-harnesses":  # asked once a day by every client
            return 404, {}, b""
        self.asked.append(f"{method} {path}")
        if self.broken:
            return 501, {}, b""
        if match := _API.fullmatch(path):
            kind, name, what, revision = match.groups()
            return self._api(kind, name, what, revision or "main", headers)
        if match := _FILE.fullmatch(path):
            kind = "datasets" if match[1] else "models"
            return self._file(kind, match[2], match[3], match[4], headers)
        return 404, {}, b""

    def _api(
        self, kind: str, name: str, what: str | None, revision: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        repository = self._readable(f"{kind}/{name}", headers)
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        files = repository.commits[commit]
        entries: list[dict[str, Any]] = [_entry(path, files[path], repository) for path in sorted(files)]
        if what == "tree":
            return _json(entries)
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

    def _file(self, kind: str, name: str, commit: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        repository = self._readable(f"{kind}/{name}", headers)
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if repository.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        content = repository.commits[commit].get(path)
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        entry = _entry(path, content, repository)
        content = self.served.get(path, content)
        etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
        answer = {"X-Repo-Commit": commit, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range", "")):
            first, last = int(match[1]), int(match[2] or len(content) - 1)
            answer["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            return 206, answer, content[first : last + 1]
        return 200, answer, content

    def _readable(self, name: str, headers: dict[str, str]) -> Repository | None:
        repository = self.repositories.get(name)
        given = {key.lower(): value for key, value in headers.items()}.get("authorization", "")
        return repository if repository and given.endswith(repository.token) else None


def _entry(path: str, content: bytes, repository: Repository) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry: dict[str, Any] = {"type": "file", "oid": oid, "size": len(content), "path": path}
    if path.endswith(repository.lfs):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry


def _json(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()
