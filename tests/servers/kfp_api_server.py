"""A small server with the v2beta1 API of Kubeflow Pipelines, as kfp's client calls it, on loopback, with scripted faults.

Every message, of the client and of this server, is checked against kfp_server_api's models (`kfp_messages`). Rules are those of the
real server's source: page tokens that carry the filter, filters that are decoded once more, conflicts of names, 64-bit numbers as
texts, defaults that are filled in.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

import yaml

from servers.kfp_messages import unknown_keys, wire_key

Obj = dict[str, Any]
DEFAULT_PAGE, LARGEST_PAGE = 20, 200
_API = "/apis/v2beta1"
_LOG = re.compile(r"/apis/v1alpha1/runs/(?P<run>[^/]+)/nodes/(?P<pod>[^/]+)/log")
_EPOCH = 1_800_000_000
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 429: 8, 500: 13, 503: 14}
"""Of gRPC, by status."""


class Refused(Exception):
    """The server refuses the request."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, message


@dataclass
class Fault:
    """What some requests meet instead of, or besides, their answer.

    `kind`: a status; `html` (a page of something else), `redirect`, `drop-before` and `drop-after` (the connection is closed before or
    after the request is carried out), `taken` (another client has done the same just before), or `slow` (the answer comes after
    `seconds`).
    """

    kind: int | str
    times: int = 10**9
    method: str = ""
    path: str = ""
    """A regular expression, searched in the path."""
    seconds: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "scripted"

    def meets(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("", method) and re.search(self.path, path) is not None


class KfpApiServer:
    """The state of the server, its switches, and what it was asked. Objects are dicts as they go over the wire."""

    def __init__(self) -> None:
        self.experiments: dict[str, Obj] = {}
        self.pipelines: dict[str, Obj] = {}
        self.versions: dict[str, Obj] = {}
        self.runs: dict[str, Obj] = {}
        self.recurring_runs: dict[str, Obj] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and query of each request."""
        self.authorizations: list[str] = []
        self.unknown_keys: list[str] = []
        """Keys of messages, of the client or of this server, that the API does not have. The fixture fails the test for one."""
        self.token = ""
        """If set, requests need it as bearer token."""
        self.multi_user = False
        self.largest_page = LARGEST_PAGE
        self.seconds_per_object = 1
        """By how much the clock goes on for each object that is created; servers keep whole seconds."""
        self.honours_orphan = False
        """Whether the workflows of a schedule outlive it if a client asks for that; servers before 2.16 do not know the option."""
        self.deleted_workflows: list[str] = []
        """Ids of runs whose workflow is gone. What their steps have started is gone as well, and their state never changes again."""
        self.logs: dict[str, str] = {}
        """Logs of steps by their pods. The server answers them beside its OpenAPI."""
        self.run_states: list[Obj] = [{"state": "SUCCEEDED"}]
        """What each further GET of a run finds changed in it; the last stays."""
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.url = ""
        self._seconds = itertools.count()

    def now(self) -> str:
        seconds = _EPOCH + next(self._seconds) * self.seconds_per_object
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))

    def named(self, kind: dict[str, Obj], name: str) -> list[Obj]:
        return [each for each in kind.values() if each["display_name"] == name]

    def calls(self, method: str, path: str) -> list[tuple[str, str, dict[str, str]]]:
        """Return the requests of this method whose path matches a regular expression."""
        return [call for call in self.requests if call[0] == method and re.search(path, call[1])]

    def add_recurring_run(self, **fields: Any) -> Obj:
        """Create a recurring run as another client would."""
        one = {
            "recurring_run_id": str(uuid.uuid4()),
            "created_at": self.now(),
            "mode": "ENABLE",
            "status": "ENABLED",
            "trigger": {"cron_schedule": {"cron": "0 0 * * * *"}},
            "max_concurrency": "10",
            **fields,
        }
        self.recurring_runs[one["recurring_run_id"]] = one
        return one

    # Requests.

    def handle(self, method: str, path: str, query: dict[str, str], body: bytes, content_type: str) -> Obj:
        """Carry out a request. Raises Refused."""
        for wanted_method, pattern, asked, answered, handler in self._routes():
            if method == wanted_method and (found := re.fullmatch(_API + pattern, path)):
                with self.lock:
                    if "upload" in pattern:
                        answer = handler(query, body, content_type)
                    else:
                        told = json.loads(body) if body else {}
                        self._check(told, asked)
                        answer = handler(*found.groups(), query, told)
                    self._check(answer, answered)
                    return answer
        raise Refused(404, "Not Found")

    def _check(self, message: Obj, model: str) -> None:
        unknown = list(unknown_keys(message, model))
        self.unknown_keys += unknown
        if unknown:
            raise Refused(400, f"no such field: {', '.join(unknown)}")

    def _routes(self) -> Iterator[tuple[str, str, str, str, Callable[..., Obj]]]:
        """Yield method, path, the models of the request's body and of the answer, and what carries it out."""
        one, none, run, recurring = "/([^/:]+)", "object", "V2beta1Run", "V2beta1RecurringRun"
        experiment, pipeline, version = "V2beta1Experiment", "V2beta1Pipeline", "V2beta1PipelineVersion"
        runs, recurring_runs = "V2beta1ListRunsResponse", "V2beta1ListRecurringRunsResponse"
        experiments, pipelines = "V2beta1ListExperimentsResponse", "V2beta1ListPipelinesResponse"
        versions = "V2beta1ListPipelineVersionsResponse"
        yield "GET", "/healthz", none, "object", lambda _q, _b: self._health()
        yield "GET", "/experiments", none, experiments, lambda q, _: self._list("experiments", experiments, self.experiments, q)
        yield (
            "POST",
            "/experiments",
            experiment,
            experiment,
            lambda _, b: self._create_named(self.experiments, "experiment_id", b, "Experiment"),
        )
        yield "GET", f"/experiments{one}", none, experiment, lambda i, _q, _b: self._get(self.experiments, i)
        yield "GET", "/pipelines", none, pipelines, lambda q, _: self._list("pipelines", pipelines, self.pipelines, q)
        yield (
            "POST",
            "/pipelines",
            pipeline,
            pipeline,
            lambda _, b: self._create_named(self.pipelines, "pipeline_id", b, "Pipeline"),
        )
        yield "POST", "/pipelines/upload_version", none, version, self._upload_version
        yield "POST", "/pipelines/upload", none, pipeline, self._upload
        yield "GET", f"/pipelines{one}", none, pipeline, lambda i, _q, _b: self._get(self.pipelines, i)
        yield "GET", f"/pipelines{one}/versions", none, versions, self._list_versions
        yield "GET", f"/pipelines{one}/versions{one}", none, version, lambda _p, i, _q, _b: self._get(self.versions, i)
        yield "DELETE", f"/pipelines{one}/versions{one}", none, none, lambda _p, i, _q, _b: self._delete(self.versions, i)
        yield "GET", "/runs", none, runs, lambda q, _: self._list("runs", runs, self.runs, q)
        yield "POST", "/runs", run, run, lambda _, b: self._create_run(b)
        yield "GET", f"/runs{one}", none, run, lambda i, _q, _b: self._get_run(i)
        yield "DELETE", f"/runs{one}", none, none, lambda i, _q, _b: self._delete(self.runs, i)
        yield "POST", f"/runs{one}:terminate", none, none, lambda i, _q, _b: self._terminate(i)
        yield (
            "GET",
            "/recurringruns",
            none,
            recurring_runs,
            lambda q, _: self._list("recurring_runs", recurring_runs, self.recurring_runs, q),
        )
        yield "POST", "/recurringruns", recurring, recurring, lambda _, b: self._create_recurring_run(b)
        yield "GET", f"/recurringruns{one}", none, recurring, lambda i, _q, _b: self._get(self.recurring_runs, i)
        yield "DELETE", f"/recurringruns{one}", none, none, self._delete_recurring_run
        yield "POST", f"/recurringruns{one}:enable", none, none, lambda i, _q, _b: self._set_mode(i, "ENABLE")
        yield "POST", f"/recurringruns{one}:disable", none, none, lambda i, _q, _b: self._set_mode(i, "DISABLE")

    def _health(self) -> Obj:
        """Written by hand in the server: of its keys, the OpenAPI has only the last two."""
        return {"commit_sha": "unknown", "tag_name": "2.17.0", "multi_user": self.multi_user, "pipeline_store": "database"}

    def _terminate(self, key: str) -> Obj:
        self._get(self.runs, key)["state"] = "CANCELING"
        return {}

    def _get(self, kind: dict[str, Obj], key: str) -> Obj:
        if key not in kind:
            raise Refused(404, f"ResourceNotFoundError: {key} not found")
        return kind[key]

    def _delete(self, kind: dict[str, Obj], key: str) -> Obj:
        self._get(kind, key)
        del kind[key]
        return {}

    def _list(self, attribute: str, model: str, kind: dict[str, Obj], query: dict[str, str], **fields: str) -> Obj:
        """Return a page of a list; `attribute` is what the client calls the list of objects in the answer."""
        namespace = query.get("namespace", "")
        if namespace and not self.multi_user:
            raise Refused(400, "Invalid input error: In single-user mode, namespace cannot be used as a filter")
        if self.multi_user and not (namespace or query.get("experiment_id") or fields):
            raise Refused(400, "Invalid input error: a namespace is required in multi-user mode")
        accept = _filter(query.get("filter", ""))
        wanted = {**fields, **{key: query[key] for key in ("namespace", "experiment_id") if query.get(key)}}
        found = [
            _public(each)
            for each in kind.values()
            if accept(each) and all(each.get(key) == value for key, value in wanted.items())
        ]
        found.sort(key=lambda each: (each["created_at"], json.dumps(each, sort_keys=True)))
        start = 0
        if token := query.get("page_token", ""):
            state = json.loads(base64.b64decode(token))
            if state["filter"] != query.get("filter", ""):
                raise Refused(400, "page token does not match the supplied sort by and/or filtering criteria")
            start = state["start"]
        size = min(int(query.get("page_size") or DEFAULT_PAGE) or DEFAULT_PAGE, self.largest_page)
        answer: Obj = {"total_size": len(found)}
        if page := found[start : start + size]:
            answer[wire_key(model, attribute)] = page
        if start + size < len(found):
            state = {"start": start + size, "filter": query.get("filter", "")}
            answer["next_page_token"] = base64.b64encode(json.dumps(state).encode()).decode()
        return answer

    def _check_namespace(self, body: Obj) -> None:
        if self.multi_user and not body.get("namespace"):
            raise Refused(400, "Invalid input error: the namespace is empty")
        if body.get("namespace") and not self.multi_user:
            raise Refused(400, "Invalid input error: In single-user mode, the namespace must be empty")

    def _create_named(self, kind: dict[str, Obj], key: str, body: Obj, what: str) -> Obj:
        self._check_namespace(body)
        if not body.get("display_name"):
            raise Refused(400, f"Invalid input error: {what} must have a non-empty name")
        if any(each.get("namespace") == body.get("namespace") for each in self.named(kind, body["display_name"])):
            raise Refused(409, f"Already exist error: Failed to create a new {what.lower()}. The name already exists.")
        one = {**body, key: str(uuid.uuid4()), "created_at": self.now()}
        kind[one[key]] = one
        return one

    def _upload(self, query: dict[str, str], body: bytes, content_type: str) -> Obj:
        spec = _uploaded(body, content_type)
        name = query.get("name") or spec["pipelineInfo"]["name"]
        pipeline = self._create_named(
            self.pipelines,
            "pipeline_id",
            {"display_name": name, **({"namespace": query["namespace"]} if query.get("namespace") else {})},
            "Pipeline",
        )
        self._add_version(pipeline["pipeline_id"], name, spec)
        return pipeline

    def _upload_version(self, query: dict[str, str], body: bytes, content_type: str) -> Obj:
        if query.get("pipelineid") not in self.pipelines:
            raise Refused(400, "Failed to create a pipeline version")
        return self._add_version(query["pipelineid"], query["name"], _uploaded(body, content_type))

    def _add_version(self, pipeline_id: str, name: str, spec: Obj) -> Obj:
        if any(each["pipeline_id"] == pipeline_id for each in self.named(self.versions, name)):
            raise Refused(409, "Failed to create a pipeline version")
        one = {
            "pipeline_id": pipeline_id,
            "pipeline_version_id": str(uuid.uuid4()),
            "display_name": name,
            "created_at": self.now(),
            "pipeline_spec": spec,
        }
        self.versions[one["pipeline_version_id"]] = one
        return one

    def _list_versions(self, pipeline_id: str, query: dict[str, str], _body: Obj) -> Obj:
        self._get(self.pipelines, pipeline_id)
        model = "V2beta1ListPipelineVersionsResponse"
        return self._list("pipeline_versions", model, self.versions, query, pipeline_id=pipeline_id)

    def _check_source(self, body: Obj) -> None:
        if body.get("experiment_id") not in self.experiments:
            raise Refused(404, "ResourceNotFoundError: Experiment not found")
        reference = body.get("pipeline_version_reference")
        if (reference is None) == (body.get("pipeline_spec") is None):
            raise Refused(400, "Invalid input error: either a pipeline spec or a pipeline version reference is required")
        if reference is not None:
            version = self._get(self.versions, reference.get("pipeline_version_id", ""))
            if version["pipeline_id"] != reference.get("pipeline_id"):
                raise Refused(400, "Invalid input error: the version is of another pipeline")

    def _create_run(self, body: Obj) -> Obj:
        self._check_source(body)
        one = {**body, "run_id": str(uuid.uuid4()), "created_at": self.now(), "state": "PENDING", "storage_state": "AVAILABLE"}
        one.setdefault("service_account", "pipeline-runner")
        one["finished_at"] = "1970-01-01T00:00:00Z"
        one["next_state"] = 0
        self.runs[one["run_id"]] = one
        return _public(one)

    def _get_run(self, key: str) -> Obj:
        one = self._get(self.runs, key)
        if self.run_states:
            one.update(self.run_states[min(one["next_state"], len(self.run_states) - 1)])
            one["next_state"] += 1
        return _public(one)

    def _create_recurring_run(self, body: Obj) -> Obj:
        self._check_source(body)
        if not body.get("display_name"):
            raise Refused(400, "Invalid input error: Recurring run's name cannot be empty")
        if not 1 <= int(body.get("max_concurrency") or 0) <= 10:
            raise Refused(400, "Invalid input error: Max concurrency of a recurring run must be at least 1 and at most 10")
        if len(body["trigger"]["cron_schedule"]["cron"].split()) not in (5, 6):
            raise Refused(400, "Invalid input error: Schedule cron is not a supported format")
        one = {**body, "recurring_run_id": str(uuid.uuid4()), "created_at": self.now()}
        one["namespace"] = self.experiments[body["experiment_id"]].get("namespace", "")
        one["max_concurrency"] = str(one["max_concurrency"])
        one.setdefault("service_account", "pipeline-runner")
        one["mode"] = "ENABLE" if body.get("mode") == "ENABLE" else "DISABLE"
        one["status"] = f"{one['mode']}D"
        self.recurring_runs[one["recurring_run_id"]] = one
        return one

    def _set_mode(self, key: str, mode: str) -> Obj:
        self._get(self.recurring_runs, key).update(mode=mode, status=f"{mode}D")
        return {}

    def _delete_recurring_run(self, key: str, query: dict[str, str], _body: Obj) -> Obj:
        """Workflows belong to their schedule: the garbage collector deletes them with it, unless they are orphaned."""
        if not (self.honours_orphan and query.get("propagation_policy") == "ORPHAN"):
            self.deleted_workflows += [run["run_id"] for run in self.runs.values() if run.get("recurring_run_id") == key]
        return self._delete(self.recurring_runs, key)


@contextmanager
def kfp_api_server(tls: Any = None) -> Iterator[KfpApiServer]:
    """Serve on loopback until the block ends; `tls` is an ssl.SSLContext."""
    state = KfpApiServer()

    class Handler(_Handler):
        server_state = state

    server = _Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    state.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a stack trace, but not of a client that is gone: tests compare what a command prints."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_state: KfpApiServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        state = self.server_state
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with state.lock:
            state.requests.append((self.command, parts.path, query))
            state.authorizations.append(self.headers.get("Authorization") or "")
            fault = next((each for each in state.faults if each.meets(self.command, parts.path)), None)
            if fault is not None:
                fault.times -= 1
        if fault is not None and self._meets(fault):
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if state.token and token != state.token:
            self._refuse(401, f"Request header error: there is no user identity in {token}")
            return
        is_upload = "/upload" in parts.path
        if (log := _LOG.fullmatch(parts.path)) is not None:
            if log["run"] in state.runs and log["pod"] in state.logs:
                self._answer(200, state.logs[log["pod"]].encode(), "text/plain")
            else:
                self._refuse(500, f"Failed to read logs for run {log['run']}", is_upload=True)
            return
        try:
            answer = state.handle(self.command, parts.path, query, body, self.headers.get("Content-Type") or "")
        except Refused as error:
            self._refuse(error.status, error.message, is_upload=is_upload)
            return
        if fault is not None and fault.kind == "drop-after":
            self.close_connection = True
            return
        if fault is not None and fault.kind == "taken":
            self._refuse(409, "Already exist error", is_upload=is_upload)
            return
        self._answer(200, json.dumps(answer).encode())

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _meets(self, fault: Fault) -> bool:
        """Whether the fault is the whole answer."""
        if isinstance(fault.kind, int):
            self._refuse(fault.kind, fault.message, headers=fault.headers)
        elif fault.kind == "html":
            self._answer(200, b"<!doctype html><html>Welcome</html>", "text/html")
        elif fault.kind == "gzip":
            self._answer(200, gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
        elif fault.kind == "redirect":
            self._answer(302, b"", "text/html", {"Location": "/dex/auth?client=kfp", **fault.headers})
        elif fault.kind == "drop-before":
            self.close_connection = True
        else:
            if fault.kind == "slow":
                self.server_state.closing.wait(fault.seconds)
            return False
        return True

    def _refuse(self, status: int, message: str, *, is_upload: bool = False, headers: dict[str, str] | None = None) -> None:
        body: Obj = {"error_message": message, "error_details": ""}
        if not is_upload:
            body = {"code": _CODES.get(status, 2), "message": message, "details": []}
        self._answer(status, json.dumps(body).encode(), headers=headers)

    def _answer(self, status: int, body: bytes, kind: str = "application/json", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        with contextlib.suppress(ConnectionError):  # of a client that has not waited
            self.end_headers()
            self.wfile.write(body)


def _public(run: Obj) -> Obj:
    return {key: value for key, value in run.items() if key != "next_state"}


def _filter(text: str) -> Callable[[Obj], bool]:
    """Return the test of a filter, which the real server decodes once more than other parameters."""
    if not text:
        return lambda _: True
    predicates = json.loads(unquote_plus(text))["predicates"]

    def accept(obj: Obj) -> bool:
        for predicate in predicates:
            wanted = predicate.get("string_value", predicate.get("stringValue"))
            value = obj.get(predicate["key"])
            if predicate["operation"] in ("EQUALS", 1):
                if value != wanted:
                    return False
            elif predicate["operation"] in ("IS_SUBSTRING", 9):
                if wanted not in str(value):
                    return False
            else:
                raise Refused(400, f"Invalid input error: operation {predicate['operation']} is not supported here")
        return True

    return accept


def _uploaded(body: bytes, content_type: str) -> Obj:
    """Return the specification in the file of an upload."""
    message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    for part in message.walk():
        if part.get_param("name", header="content-disposition") == "uploadfile":
            documents = list(yaml.safe_load_all(part.get_payload(decode=True)))
            if isinstance(documents[0], dict) and "pipelineInfo" in documents[0]:
                return documents[0] if len(documents) == 1 else {"pipeline_spec": documents[0], "platform_spec": documents[1]}
    raise Refused(400, "Failed to read a pipeline spec file")
