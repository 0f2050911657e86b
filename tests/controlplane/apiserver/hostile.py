# ruff: noqa: E501 - the vocabularies are read as blocks
"""Requests that no careful client would send, as hypothesis strategies, and the way to put them to the server without a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from hypothesis import strategies as st
from manifests import manifest
from starlette.types import Message

from trainwright.api import kinds
from trainwright.api.kinds import TRAINING_RUNTIME, Kind
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.media import APPLY, JSON_PATCH, MERGE, STRATEGIC
from trainwright.trainer.webhooks import VALIDATORS

ADMIN = "hostile-admin-token"
DEADLINE = 20.0
"""Seconds after which a request counts as hanging; the machine may be busy with other things."""
NAMES = ("a", "b", "default")
WRITTEN = tuple(kind for kind in kinds.ALL if kind != kinds.DEFINITION)


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def status_object(self) -> dict[str, Any]:
        return orjson.loads(self.body)


@dataclass
class Ask:
    """One request. `query` and `headers` are as they stand on the wire."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    token: str | None = ADMIN


class Failures(logging.Handler):
    """What the server logs of requests that it failed to answer."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


class InProcess:
    """The application and an event loop to run it in."""

    def __init__(self, server: ResourceServer) -> None:
        self.server = server
        self.app = Api(server, Tokens(ADMIN, b"k" * 32))
        self._runner = asyncio.Runner()
        self._failures = Failures()
        logging.getLogger("trainwright.controlplane.apiserver").addHandler(self._failures)

    def close(self) -> None:
        logging.getLogger("trainwright.controlplane.apiserver").removeHandler(self._failures)
        self._runner.close()

    def send(self, ask: Ask) -> Reply:
        """The answer. Raises TimeoutError; fails for an exception that nobody had thought of."""
        self._failures.found.clear()
        reply = self._runner.run(self._send(ask))
        assert not self._failures.found, f"{ask}\n{self._failures.found[0]}"
        return reply

    async def _send(self, ask: Ask) -> Reply:
        headers = {"content-length": str(len(ask.body)), **ask.headers}
        if ask.token is not None:
            headers["authorization"] = f"Bearer {ask.token}"
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": ask.method,
            "scheme": "https",
            "path": ask.path,
            "raw_path": quote(ask.path, safe="/%").encode(),
            "root_path": "",
            "query_string": ask.query.encode("utf-8", "surrogateescape"),
            "headers": [
                (key.lower().encode("latin-1", "replace"), value.encode("latin-1", "replace")) for key, value in headers.items()
            ],
            "server": ("127.0.0.1", 1),
            "client": ("127.0.0.1", 2),
        }
        incoming = [{"type": "http.request", "body": ask.body, "more_body": False}]
        reply = Reply(0, {}, b"")

        async def receive() -> Message:
            return incoming.pop() if incoming else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {key.decode().lower(): value.decode("latin-1") for key, value in message["headers"]}
            else:
                reply.body += message.get("body", b"")

        async with asyncio.timeout(DEADLINE):
            await self.app(scope, receive, send)
        return reply


_TEXTS = st.sampled_from(
    ["", "a", "b", "default", "\0", "a/b", "..", ".", "%2F", "a%00b", "é" * 40, "x" * 300, "A_b", "-a", "1", "true", "null", "٣",
     "²", "10e999", "1Gi", "-1", "2026-01-02T03:04:05Z", "0000-00-00T00:00:00Z", "9" * 40, "9" * 5000, "IfNotPresent", "*",
     "\u2028", "\U0001f600", "a=b", "f:a", 'k:{"name":"a"}', "k:{", "{}", "[]", '{"spec":{"containers":[1]}}', "Infinity"]
)  # fmt: skip
_NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 255, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 10**30, 1.5, -0.0, 1e308, 5e-324]
)
_KEYS = st.sampled_from(
    ["", "a", "name", "metadata", "spec", "status", "kind", "apiVersion", "labels", "annotations", "finalizers", "ownerReferences",
     "managedFields", "fieldsV1", "manager", "operation", "containers", "initContainers", "env", "ports", "volumes", "template",
     "selector", "matchLabels", "matchExpressions", "conditions", "type", "data", "stringData", "replicatedJobs", "replicas",
     "parallelism", "completions", "runtimeRef", "trainer", "resources", "limits", "requests", "cpu", "uid", "resourceVersion",
     "generateName", "namespace", "deletionTimestamp", "involvedObject", "regarding", "note", "series", "count", "source", "f:a",
     "f:metadata", "f:spec", ".", "k:{", 'k:{"name":"a"}', "v:1", "i:0", "$patch", "$retainKeys", "$setElementOrder/containers",
     "$deleteFromPrimitiveList/finalizers", "$setElementOrder/ports", "suspend", "restartPolicy", "items", "é", "\0", "a.b/c"]
)  # fmt: skip
_LEAVES = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)
values = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=8
)
"""JSON that fits nowhere."""


def deep(levels: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    return (opening * levels + "1" + closing * levels).encode()


_RAW = st.sampled_from(
    [b"", b" ", b"{", b"[]", b"null", b"NaN", b'{"a":NaN}', b'{"a":Infinity}', b'{"metadata":{"name":"\xff"}}', b"\xef\xbb\xbf{}",
     b'{"a":"\\ud800"}', b'{"a":"\\u0000"}', b'{"metadata":{"name":"a","name":"b"},"metadata":{}}', b"\xff\xfe{\0}\0", b"\0" * 40,
     b'{"a":' + b"9" * 5000 + b"}", b'{"a":1e99999}', deep(120), deep(250), deep(260), deep(900), deep(2000), deep(100_000),
     deep(900, "[", "]"), deep(100_000, "[", "]"), b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]", b"a: .nan", b"a: .inf", b"a: !!python/none",
     b"a: !!binary aGk=", b"a: !!timestamp 2026-01-02", b"? [a]\n: 1", b"a: 1:" + b":".join([b"1"] * 3000), b"<<: {a: 1}", b"- - - a",
     b"a: 0x" + b"f" * 5000, b"--- a\n--- b", b"%YAML 9.9\n---\na", b"a: \"\\ud800\"", b"a: 2026-01-02\n" * 3, b"k8s\0", b"k8s\0\x0a\x7f",
     b"k8s\0" + b"\x0a" * 400, deep(150, '{"metadata":', "}"), deep(150, '{"spec":{"template":', "}}")]
)  # fmt: skip


_ELEMENTS = st.sampled_from(
    ["f:metadata", "f:labels", "f:a", "f:spec", "f:data", "f:status", "f:containers", 'k:{"name":"main"}', "k:{", "k:1", "v:1", "v:",
     "i:0", ".", "x", "f:name", "f:namespace", "f:template"]
)  # fmt: skip
_TREES = st.recursive(st.just({}), lambda inner: st.dictionaries(_ELEMENTS, inner | _LEAVES, max_size=3), max_leaves=8)
_OWNERS = {"manager": ["me", "you", "kubectl", 5], "operation": ["Apply", "Update", "x"]}
_SOMETIMES = {"apiVersion": ["v1", "batch/v1"], "subresource": ["status", "x", 1]}


def _sampled(choices: dict[str, list[Any]]) -> dict[str, Any]:
    return {key: st.sampled_from(values) for key, values in choices.items()}


managed = st.lists(
    st.fixed_dictionaries(_sampled(_OWNERS) | {"fieldsV1": _TREES}, optional=_sampled(_SOMETIMES) | {"time": _TEXTS}), max_size=3
)
"""`managedFields` as a client may send them."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@st.composite
def mutated(draw: st.DrawFn, base: Any) -> Any:
    """`base` with a few of its parts replaced by something else, or gone."""
    obj = orjson.loads(orjson.dumps(base))
    for _ in range(draw(st.integers(0, 3))):
        holder: Any = obj
        for _ in range(draw(st.integers(0, 6))):
            inner = [
                value
                for value in (holder.values() if isinstance(holder, dict) else holder)
                if isinstance(value, dict | list) and value
            ]
            if not inner:
                break
            holder = draw(st.sampled_from(inner))
        if isinstance(holder, list):
            holder[draw(st.integers(0, len(holder) - 1))] = draw(values)
        elif draw(st.booleans()):
            holder[draw(_KEYS)] = draw(values)
        elif holder:
            key = draw(st.sampled_from(sorted(holder)))
            if draw(st.booleans()):
                del holder[key]
            else:
                holder[key] = draw(values)
        if not obj:
            break
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        if draw(st.integers(0, 5)) == 0:
            metadata["managedFields"] = draw(managed)
        if draw(st.integers(0, 9)) == 0:
            metadata["annotations"] = {
                _LAST_APPLIED: draw(_TEXTS) if draw(st.booleans()) else dumps(draw(mutated(base))).decode()
            }
    return obj


_POD_SPEC: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [
        {
            "name": "main",
            "image": "example.com/img:1",
            "command": ["a"],
            "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"containerPort": 80, "name": "web"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "readinessProbe": {"exec": {"command": ["a"]}, "periodSeconds": 1},
        }
    ],
    "initContainers": [{"name": "first", "image": "i", "restartPolicy": "Always"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "schedulingGates": [{"name": "example.com/a"}],
}
_JOB_SPEC: dict[str, Any] = {
    "parallelism": 1,
    "completions": 2,
    "completionMode": "Indexed",
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}}]},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**_POD_SPEC, "schedulingGates": []}},
}
_JOBSET_SPEC: dict[str, Any] = {
    "replicatedJobs": [
        {"name": "w", "replicas": 1, "template": {"spec": _JOB_SPEC}},
        {"name": "x", "template": {"spec": _JOB_SPEC}},
    ],
    "failurePolicy": {"maxRestarts": 1, "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}]},
    "successPolicy": {"operator": "All", "targetReplicatedJobs": ["w"]},
    "network": {"enableDNSHostnames": True},
}
_RUNTIME_SPEC: dict[str, Any] = {
    "mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}},
    "template": {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}}}}]}},
}  # fmt: skip
_REST: dict[str, dict[str, Any]] = {
    "Pod": {"spec": _POD_SPEC},
    "Job": {"spec": _JOB_SPEC},
    "JobSet": {"spec": _JOBSET_SPEC},
    "TrainJob": {"spec": {"runtimeRef": {"name": "rt", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 1, "command": ["a"], "env": [{"name": "A", "value": "b"}]}}},
    "TrainingRuntime": {"spec": _RUNTIME_SPEC},
    "ClusterTrainingRuntime": {"spec": _RUNTIME_SPEC},
    "Service": {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], "selector": {"a": "b"}, "clusterIP": "None"}},
    "ConfigMap": {"data": {"a": "b"}, "binaryData": {"c": "aGk="}},
    "Secret": {"data": {"a": "aGk="}, "stringData": {"b": "c"}, "type": "Opaque"},
    "PersistentVolumeClaim": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    "Lease": {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-01-02T03:04:05.000000Z"}},
    "Event": {"involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}, "reason": "R", "message": "m", "type": "Normal", "source": {"component": "c"}, "count": 1, "firstTimestamp": "2026-01-02T03:04:05Z"},
    "PodGroup": {"spec": {"minMember": 1}},
    "PriorityClass": {"value": 1, "description": "d"},
    "RuntimeClass": {"handler": "h"},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "ResourceQuota": {"spec": {"hard": {"pods": "1"}}},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
    "PodTemplate": {"template": {"spec": _POD_SPEC}},
    "Node": {"spec": {"unschedulable": False}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": []}},
    "ServiceAccount": {"secrets": [{"name": "a"}]},
}  # fmt: skip
_V1_EVENT = {"regarding": _REST["Event"]["involvedObject"], "note": "m", "type": "Normal", "reason": "R", "action": "A", "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "c/d", "reportingInstance": "i"}  # fmt: skip


def valid(kind: Kind, name: str = "a") -> dict[str, Any]:
    """An object that is accepted, with a good part of the fields that its kind has."""
    rest = _V1_EVENT if kind.group == "events.k8s.io" else _REST.get(kind.kind, {})
    metadata = {"labels": {"a": "b"}, "annotations": {"a": "b"}}
    return {**manifest(kind, name, metadata=metadata), **orjson.loads(orjson.dumps(rest))}


def path_of(kind: Kind, name: str | None = None, below: str = "") -> str:
    return kind.path("default", name) + (f"/{below}" if below else "")


def dumps(value: Any) -> bytes:
    """As JSON, also what JSON proper has no words for."""
    import json

    return json.dumps(value).encode("utf-8", "surrogatepass")


_WRITE_QUERIES = st.sampled_from(
    ["", "dryRun=All", "fieldValidation=Strict", "fieldValidation=Ignore", "fieldValidation=x", "dryRun=", "fieldManager=" + "m" * 200,
     "fieldManager=%00", "force=true", "fieldManager=me&force=1", "fieldManager=me", "pretty=%ff", "dryRun=All&dryRun=None", "&&==&"]
)  # fmt: skip
_MEDIA = st.sampled_from(
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "", "text/plain", "application/json; charset=\xff",
     "application/json;;;=", ";", "a" * 4000]
)  # fmt: skip
_ACCEPT = st.sampled_from(
    ["*/*", "application/json", "application/yaml", "", ",", ";", "x", "application/json;as=Table;v=v1;g=meta.k8s.io",
     "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=;v=;g=", "," * 3000, "application/json;as=Table",
     "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/yaml;as=Table;v=v1;g=meta.k8s.io", "application/*"]
)  # fmt: skip


_OTHER_WRITES = """
POST /api/v1/namespaces/default/pods/a/binding
POST /api/v1/namespaces/default/pods/a/eviction
PUT /api/v1/namespaces/a/finalize
POST /api/v1/namespaces/default/serviceaccounts/a/token
POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews
POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews
POST /apis/authentication.k8s.io/v1/selfsubjectreviews
POST /apis/authentication.k8s.io/v1/tokenreviews
""".strip().splitlines()
_REVIEW_FIELDS = ["kind", "apiVersion", "spec", "status", "metadata", "target", "deleteOptions"]


@st.composite
def writes(draw: st.DrawFn) -> Ask:
    """Creates and replacements: whole objects, nearly right or not at all."""
    kind, name = draw(st.sampled_from(WRITTEN)), draw(st.sampled_from(NAMES))
    media = draw(_MEDIA) if draw(st.integers(0, 5)) == 0 else "application/json"
    body = draw(_RAW) if draw(st.integers(0, 4)) == 0 else dumps(draw(mutated(valid(kind, name))))
    if media == "application/json" and draw(st.integers(0, 9)) == 0:
        media, body = "application/yaml", body
    below = draw(st.sampled_from(["", "", "", "status"]))
    if draw(st.booleans()):
        method, path = "POST", path_of(kind)
    else:
        method, path = "PUT", path_of(kind, name, below)
    if draw(st.integers(0, 9)) == 0:
        method, path = draw(st.sampled_from(_OTHER_WRITES)).split()
        if draw(st.booleans()):
            body = dumps(draw(st.dictionaries(st.sampled_from(_REVIEW_FIELDS), values)))
    headers = {"content-type": media, "accept": draw(_ACCEPT)} if draw(st.booleans()) else {"content-type": media}
    return Ask(method, path, draw(_WRITE_QUERIES), body, headers)


_PARTS = st.sampled_from(
    ["metadata", "labels", "spec", "status", "containers", "0", "-", "1", "a", "template", "~1", "~0", "~", "", "01", "9" * 20, "data",
     "managedFields", "fieldsV1", "finalizers", "é"]
)  # fmt: skip
_POINTERS = st.lists(_PARTS, max_size=5).map(lambda parts: "".join(f"/{part}" for part in parts))
_OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x", 5, None])},
    optional={"path": st.one_of(_POINTERS, _LEAVES), "from": st.one_of(_POINTERS, _LEAVES), "value": values},
)
_KNOWN_OPERATIONS = st.sampled_from(["add", "remove", "replace", "move", "copy", "test"])
_SAFE_OPERATIONS = st.fixed_dictionaries({"op": _KNOWN_OPERATIONS, "path": _POINTERS, "from": _POINTERS, "value": values})


@st.composite
def patched(draw: st.DrawFn) -> Ask:
    """Patches of every kind, of objects that are there."""
    kind, name = draw(st.sampled_from(WRITTEN)), draw(st.sampled_from(NAMES))
    known = [MERGE, JSON_PATCH, STRATEGIC, APPLY, APPLY]
    media = draw(st.sampled_from([*known, "application/json", ""]))
    body: bytes
    if draw(st.integers(0, 6)) == 0:
        body = draw(_RAW)
    elif media == JSON_PATCH:
        body = dumps(draw(st.lists(_OPERATIONS | _SAFE_OPERATIONS, max_size=5)))
        if draw(st.integers(0, 9)) == 0:
            doubling = [{"op": "copy", "from": "", "path": "/spec"}, {"op": "copy", "from": "/metadata", "path": "/metadata/a"}]
            body = dumps(doubling * draw(st.integers(1, 40)))
    elif media == APPLY:
        body = dumps(draw(mutated(valid(kind, name))))
    else:
        whole = draw(st.booleans())
        body = dumps(draw(mutated(valid(kind, name))) if whole else draw(st.dictionaries(_KEYS, values, max_size=4)))
    query = draw(_WRITE_QUERIES)
    if media == APPLY and draw(st.integers(0, 5)):
        query = f"fieldManager={draw(st.sampled_from(['me', 'you', 'kubectl']))}&force={draw(st.sampled_from(['true', 'false']))}"
    below = draw(st.sampled_from(["", "", "status"]))
    return Ask("PATCH", path_of(kind, name, below), query, body, {"content-type": media})


_VERSIONS = st.sampled_from(
    ["", "0", "1", "5", "-1", "abc", "1e3", "٣", "9" * 19, "9" * 20, "9" * 31, "9" * 5000, " 1", "1_0", "+1", "%00"]
)
_LABELS = st.one_of(
    st.sampled_from(
        ["", "a", "!a", "a=b", "a==b", "a!=b", "a in (b,c)", "a notin ()", "a>1", "a<²", "a>+-5", "a=", "=", "!", "!!a", "a in", "a in (",
         "(((((", ",,,,", "a,", "é", "a/b/c=d", "a=" + "x" * 100, "x" * 400, "\0", "a=b," * 2000 + "a", "a in (" + "b," * 5000 + "b)",
         "%", "a in (((((b)))))", "a>" + "9" * 60, "a>" + "9" * 5000]
    ),
    st.text("ab=!(),<> inot/.é\0", max_size=20),
)  # fmt: skip
_FIELDS = st.one_of(
    st.sampled_from(
        ["", "metadata.name=a", "metadata.name!=a", "metadata.name==a", "status.phase=Pending", "spec.nodeName=", "a=b", "=", "metadata.name",
         "metadata.name=a," * 2000, "metadata.name=\0", "type=x", "involvedObject.name=a", "reason=é", "metadata.namespace=a,=,", "x" * 5000]
    ),
    st.text("metadata.name=!,sp ", max_size=20),
)  # fmt: skip
_NUMBERS_TEXT = st.sampled_from(
    ["", "0", "1", "2", "-1", "9" * 19, "9" * 30, "9" * 400, "9" * 5000, "1.5", "x", "٣", "1_0", " 1 ", "%2B1", "NaN"]
)


def token(version: Any, start: Any, api: Any = "meta.k8s.io/v1") -> str:
    import base64

    return base64.urlsafe_b64encode(dumps({"v": api, "rv": version, "start": start})).decode().rstrip("=")


_TOKENS = st.one_of(
    st.sampled_from(["x", "=", "a" * 3000, "é", "%00", "bnVsbA", "W10", "MQ"]),
    st.builds(token, st.one_of(_NUMBERS, _LEAVES), values, st.sampled_from(["meta.k8s.io/v1", "v1", None])),
    st.builds(token, st.integers(-3, 3000), _TEXTS),
)


_PARAMETERS = {"labelSelector": _LABELS, "fieldSelector": _FIELDS, "continue": _TOKENS, "resourceVersion": _VERSIONS} | _sampled(
    {
        "resourceVersionMatch": ["", "Exact", "NotOlderThan", "x"],
        "watch": ["1", "true", "0", "", "maybe"],
        "allowWatchBookmarks": ["1", "x"],
        "sendInitialEvents": ["1", "false", "x"],
        "includeObject": ["None", "Object", "x"],
        "propagationPolicy": ["Foreground", "x"],
    }
)


@st.composite
def reads(draw: st.DrawFn) -> Ask:
    """Lists, watches and gets with every parameter there is."""
    kind = draw(st.sampled_from(kinds.ALL))
    numbers = ["limit", "timeoutSeconds", "tailLines", "sinceSeconds", "limitBytes", "gracePeriodSeconds"]
    given = st.fixed_dictionaries({}, optional=_PARAMETERS | dict.fromkeys(numbers, _NUMBERS_TEXT))
    raw = draw(st.integers(0, 3)) == 0
    query = "&".join(f"{key}={value if raw else quote(value, safe='')}" for key, value in draw(given).items())
    name = draw(st.sampled_from([None, None, None, "a", "b", "none"]))
    method = draw(st.sampled_from(["GET", "GET", "GET", "GET", "HEAD", "DELETE"]))
    below = draw(st.sampled_from(["", "", "status", "log", "x"])) if name else ""
    if method == "DELETE" and name is None:
        query += "&labelSelector=no%3Dbody"
    path = path_of(kind, name, below) if draw(st.booleans()) else kind.path(None, name)
    body = b""
    if method == "DELETE":
        known = ["kind", "propagationPolicy", "gracePeriodSeconds", "preconditions", "orphanDependents", "dryRun", "apiVersion"]
        body = draw(st.one_of(st.just(b""), _RAW, st.dictionaries(st.sampled_from(known), values, max_size=3).map(dumps)))
    return Ask(method, path, query, body, {"accept": draw(_ACCEPT)})


_SEGMENTS = st.one_of(
    st.sampled_from(
        ["api", "apis", "v1", "batch", "namespaces", "default", "pods", "jobs", "a", "status", "log", "binding", "finalize", "openapi", "v2", "v3",
         "", ".", "..", "%2F", "\0", "é", "x" * 3000, "trainer.kubeflow.org", "v1alpha1", "trainjobs", "token", "events.k8s.io", "events",
         "metrics", "readyz", "version", "authorization.k8s.io", "selfsubjectaccessreviews", "proxy", "exec", "serviceaccounts"]
    ),
    st.text(max_size=6),
)  # fmt: skip


@st.composite
def strays(draw: st.DrawFn) -> Ask:
    """Paths that lead nowhere, methods that do not exist, headers and tokens of every kind."""
    path = "/" + "/".join(draw(st.lists(_SEGMENTS, max_size=9)))
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get", "X" * 200]
    method = draw(st.sampled_from(methods))
    names = ["accept", "accept-encoding", "content-type", "content-length", "user-agent", "if-none-match", "x-a", "authorization"]
    text = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=30)
    headers = draw(st.dictionaries(st.sampled_from(names), st.one_of(_ACCEPT, text, st.just("Bearer " + "é" * 9)), max_size=4))
    query = draw(st.one_of(_WRITE_QUERIES, st.text(st.characters(max_codepoint=126, min_codepoint=33), max_size=30)))
    who = draw(st.sampled_from([ADMIN, ADMIN, ADMIN, None, "", "wrong", "a.b.c", "é", "x" * 9000, "eyJhbGciOiJub25lIn0.e30."]))
    return Ask(method, path, query, draw(st.one_of(st.just(b""), _RAW)), headers, who)


@contextmanager
def served() -> Iterator[InProcess]:
    """An API server in memory with a runtime that jobs can name."""
    store = Store(":memory:")
    server = ResourceServer(store, validators=VALIDATORS)
    server.create(TRAINING_RUNTIME, "default", valid(TRAINING_RUNTIME, "rt"))
    peer = InProcess(server)
    yield peer
    peer.close()
    store.close()
