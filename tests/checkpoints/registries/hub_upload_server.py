"""A Hugging Face Hub on loopback that takes uploads: repositories with commits, branches and tags, and LFS with checked digests.

It answers what `huggingface_hub` asks when it publishes without Xet. Every request has a number; `faults` says for each whether it
fails before it has an effect, or afterwards, as when the answer is lost.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

_MODEL = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|preupload|commit|tag|branch|refs)(?:/([^/]+))?(?:/.*)?)?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_BATCH = re.compile(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch")
TOKEN = "hf_a-token-that-may-write"
Answer = tuple[int, dict[str, str], bytes]
When = Literal["", "before", "after"]
FAILED = 418
"""A status that no client retries."""


@dataclass
class Commit:
    parent: str
    message: str
    files: dict[str, bytes]


@dataclass
class HubModelRepository:
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    lfs: tuple[str, ...] = (".safetensors", ".pt", ".pth", ".bin")

    def push(self, files: dict[str, bytes | None], *, message: str = "by hand", branch: str = "main") -> str:
        """Commit changes on a branch; None removes a file."""
        parent = self.branches.get(branch, "")
        kept = dict(self.commits[parent].files) if parent else {}
        for path, content in files.items():
            if content is None:
                del kept[path]
            else:
                kept[path] = content
        oid = hashlib.sha1(f"{len(self.commits)} {parent} {message}".encode()).hexdigest()
        self.commits[oid] = Commit(parent, message, kept)
        self.branches[branch] = oid
        return oid

    def head(self, branch: str = "main") -> dict[str, bytes]:
        return self.commits[self.branches[branch]].files

    def commit_of(self, revision: str) -> str | None:
        found = self.branches.get(revision) or self.tags.get(revision) or revision
        return found if found in self.commits else None


class HubUploadServer:
    """`repositories` by `org/name`, `blobs` of LFS by SHA-256, `asked` the requests in order."""

    def __init__(self) -> None:
        self.repositories: dict[str, HubModelRepository] = {}
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.uploaded: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.faults: Callable[[int, str], When] = lambda _number, _request: ""
        self.before_commit: Callable[[], None] = lambda: None
        self.refusal = ""
        """What the server says when it refuses a commit."""
        self.damages: dict[str, bytes] = {}
        """Contents that a commit gets instead, by path."""
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def handle_request(self) -> None:
                owner._serve(self)

            def do_GET(self) -> None:
                self.handle_request()

            def do_HEAD(self) -> None:
                self.handle_request()

            def do_POST(self) -> None:
                self.handle_request()

            def do_PUT(self) -> None:
                self.handle_request()

            def do_DELETE(self) -> None:
                self.handle_request()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def commits_of(self, name: str, branch: str = "main") -> list[str]:
        """The messages of the commits of a branch, the newest first."""
        repository = self.repositories[name]
        oid, messages = repository.branches[branch], []
        while oid:
            messages.append(repository.commits[oid].message)
            oid = repository.commits[oid].parent
        return messages

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length) if length else self._chunks(handler)
        path = urlsplit(handler.path).path
        request = f"{handler.command} {unquote(path)}"
        with self._lock:
            if path == "/api/agent-harnesses":  # asked once a day by every client
                status, headers, content = self._json({}, 404)
            else:
                number = len(self.asked)
                self.asked.append(request)
                self.headers.append({name.lower(): value for name, value in handler.headers.items()})
                fault = self.faults(number, request)
                failed = self._json({}, FAILED)
                status, headers, content = failed if fault == "before" else self._answer(handler, path, body)
                if fault == "after":
                    status, headers, content = failed
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)

    @staticmethod
    def _chunks(handler: BaseHTTPRequestHandler) -> bytes:
        body = b""
        if handler.headers.get("Transfer-Encoding") == "chunked":
            while size := int(handler.rfile.readline(), 16):
                body += handler.rfile.read(size)
                handler.rfile.readline()
            handler.rfile.readline()
        return body

    def _answer(self, handler: BaseHTTPRequestHandler, path: str, body: bytes) -> Answer:
        command = handler.command
        if path.startswith("/lfs/"):  # signed addresses need no token
            return self._put(path.rpartition("/")[2], body)
        if handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b""
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if match := _BATCH.fullmatch(path):
            return self._batch(match[1], json.loads(body))
        if path.endswith("/verify"):
            return self._json({})
        if match := _RESOLVE.fullmatch(path):
            return self._resolve(match[1], unquote(match[2]), unquote(match[3]))
        if match := _MODEL.fullmatch(path):
            return self._model(command, match[1], match[2] or "", unquote(match[3] or ""), body)
        return 404, {}, b""

    def _model(self, command: str, name: str, what: str, revision: str, body: bytes) -> Answer:
        repository = self.repositories.get(name)
        if repository is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if what == "refs":
            return self._refs(repository)
        if what == "branch":
            return self._branch(repository, revision, json.loads(body))
        if (command, what) == ("DELETE", "tag"):
            return self._json({}) if repository.tags.pop(revision, None) else (404, {}, b"")
        commit = repository.commit_of(revision or "main")
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if what == "tag":
            tag = json.loads(body)["tag"]
            if tag in repository.tags:
                return 409, {"X-Error-Message": "Tag reference exists already"}, b""
            repository.tags[tag] = commit
            return self._json({})
        if what == "preupload":
            return self._preupload(repository, commit, json.loads(body))
        if what == "commit":
            return self._commit(repository, name, revision, body)
        if what == "tree":
            return self._json([_entry(path, content, repository) for path, content in repository.commits[commit].files.items()])
        return self._json({"_id": "1", "id": name, "sha": commit, "private": repository.private, "siblings": []})

    def _create(self, wanted: dict[str, Any]) -> Answer:
        name = f"{wanted['organization']}/{wanted['name']}" if wanted.get("organization") else wanted["name"]
        if name in self.repositories:
            return self._json({"error": "You already created this model repo", "url": f"{self.url}/{name}"}, 409)
        private = wanted.get("private", False) or wanted.get("visibility") == "private"
        self.repositories[name] = HubModelRepository(private)
        self.repositories[name].push({".gitattributes": b"*.safetensors filter=lfs\n"}, message="initial commit")
        return self._json({"url": f"{self.url}/{name}", "name": name, "id": "1"})

    def _branch(self, repository: HubModelRepository, branch: str, wanted: dict[str, Any]) -> Answer:
        if branch in repository.branches:
            return self._json({"error": "Reference already exists"}, 409)
        repository.branches[branch] = repository.branches[wanted.get("startingPoint", "main")]
        return self._json({})

    def _refs(self, repository: HubModelRepository) -> Answer:
        def refs(kind: str, named: dict[str, str]) -> list[dict[str, str]]:
            return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": oid} for name, oid in named.items()]

        return self._json({"branches": refs("heads", repository.branches), "tags": refs("tags", repository.tags), "converts": []})

    def _preupload(self, repository: HubModelRepository, commit: str, wanted: dict[str, Any]) -> Answer:
        files = repository.commits[commit].files
        ignored = wanted.get("gitIgnore", files.get(".gitignore", b"").decode()).split()
        return self._json(
            {
                "files": [
                    {
                        "path": each["path"],
                        "uploadMode": "lfs" if each["path"].endswith(repository.lfs) else "regular",
                        "shouldIgnore": each["path"] in ignored,
                        **({"oid": _oid(files[each["path"]])} if each["path"] in files else {}),
                    }
                    for each in wanted["files"]
                ]
            }
        )

    def _batch(self, name: str, wanted: dict[str, Any]) -> Answer:
        objects = []
        for each in wanted["objects"]:
            actions = {
                "upload": {"href": f"{self.url}/lfs/{each['oid']}"},
                "verify": {"href": f"{self.url}/{name}.git/info/lfs/verify", "header": {"Authorization": f"Bearer {TOKEN}"}},
            }
            objects.append(dict(each) if each["oid"] in self.blobs else {**each, "actions": actions})
        return self._json({"transfer": "basic", "objects": objects})

    def _put(self, oid: str, body: bytes) -> Answer:
        if hashlib.sha256(body).hexdigest() != oid:
            return 400, {}, b""
        self.blobs[oid] = body
        self.uploaded.append(oid)
        return 200, {}, b""

    def _commit(self, repository: HubModelRepository, name: str, branch: str, body: bytes) -> Answer:
        self.before_commit()
        if self.refusal:
            return 403, {"X-Error-Message": self.refusal}, b""
        header, *operations = [json.loads(line) for line in body.splitlines()]
        if header["value"].get("parentCommit") not in (None, repository.branches[branch]):
            return 412, {"X-Error-Message": "A commit has happened since. Please refresh and try again."}, b""
        changes: dict[str, bytes | None] = {}
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                changes[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                changes[value["path"]] = self.blobs[value["oid"]]
            else:
                assert operation["key"] == "deletedFile"
                changes[value["path"]] = None
        changes |= self.damages
        message = f"{header['value']['summary']}\n\n{header['value']['description']}"
        oid = repository.push(changes, message=message, branch=branch)
        return self._json({"commitOid": oid, "commitUrl": f"{self.url}/{name}/commit/{oid}", "hookOutput": "", "success": True})

    def _resolve(self, name: str, revision: str, path: str) -> Answer:
        repository = self.repositories[name]
        commit = repository.commit_of(revision)
        content = repository.commits[commit].files.get(path) if commit else None
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        return 200, {"ETag": f'"{_oid(content)}"'}, content

    @staticmethod
    def _json(value: Any, status: int = 200) -> Answer:
        return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(path: str, content: bytes, repository: HubModelRepository) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": _oid(content), "size": len(content), "path": path}
    if path.endswith(repository.lfs) and content:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry
