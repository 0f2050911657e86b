"""A Kubeflow Model Registry on loopback, as far as its clients ask: names are unique, nothing is a transaction.

As with the hub of the tests, `faults` says for each request whether it fails before or after it has an effect.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

PREFIX = "/api/model_registry/v1/"
When = Literal["", "before", "after"]
FAILED = 418
Resource = dict[str, Any]


class ModelRegistryServer:
    """`models`, `versions` and `artifacts` in the order of their creation; `token` is needed if it is set."""

    def __init__(self) -> None:
        self.models: list[Resource] = []
        self.versions: list[Resource] = []
        self.artifacts: list[Resource] = []
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.token = ""
        self.faults: Callable[[int, str], When] = lambda _number, _request: ""
        self.before_create: Callable[[str], None] = lambda _what: None
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16

            def handle_request(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with owner._lock:
                    status, answer = owner._serve(self, json.loads(body) if body else {})
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self.handle_request()

            def do_POST(self) -> None:
                self.handle_request()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.port = self._server.server_address[1]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forget(self) -> None:
        for each in (self.models, self.versions, self.artifacts, self.asked):
            each.clear()

    def _serve(self, handler: BaseHTTPRequestHandler, body: Resource) -> tuple[int, Resource]:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        number, request = len(self.asked), f"{handler.command} {parts.path.removeprefix(PREFIX)}"
        self.asked.append(request)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return 401, {"code": "401", "message": "unauthorized"}
        fault = self.faults(number, request)
        if fault != "before":
            answer = self._answer(handler.command, request.partition(" ")[2], query, body)
        return (FAILED, {"code": "teapot", "message": "scripted"}) if fault else answer

    def _answer(self, command: str, path: str, query: dict[str, str], body: Resource) -> tuple[int, Resource]:
        match command, path.split("/"):
            case "GET", ["registered_model"]:
                return _found(self.models, name=query["name"])
            case "GET", ["registered_models"]:
                return 200, _list(self.models)
            case "POST", ["registered_models"]:
                self.before_create("model")
                return _create(self.models, body, "name")
            case "GET", ["model_version"]:
                return _found(self.versions, name=query["name"], registeredModelId=query["parentResourceId"])
            case "POST", ["model_versions"]:
                self.before_create("version")
                return _create(self.versions, body, "name", "registeredModelId")
            case "GET", ["model_artifact"]:
                return _found(self.artifacts, name=query["name"], modelVersionId=query["parentResourceId"])
            case "POST", ["model_versions", version, "artifacts"]:
                self.before_create("artifact")
                return _create(self.artifacts, {**body, "modelVersionId": version}, "name", "modelVersionId")
            case "GET", ["model_versions", version, "artifacts"]:
                return 200, _list([each for each in self.artifacts if each["modelVersionId"] == version])
        return 404, {"code": "404", "message": "no such path"}


def _found(resources: list[Resource], **fields: str) -> tuple[int, Resource]:
    for each in resources:
        if all(each[field] == value for field, value in fields.items()):
            return 200, each
    return 404, {"code": "404", "message": "not found"}


def _create(resources: list[Resource], body: Resource, *unique: str) -> tuple[int, Resource]:
    status, _ = _found(resources, **{field: body[field] for field in unique})
    if status == 200:
        return 409, {"code": "409", "message": "already exists"}
    resources.append({**body, "id": str(len(resources) + 1), "createTimeSinceEpoch": "1", "lastUpdateTimeSinceEpoch": "1"})
    return 201, resources[-1]


def _list(resources: list[Resource]) -> Resource:
    return {"items": resources, "size": len(resources), "pageSize": 100, "nextPageToken": ""}
