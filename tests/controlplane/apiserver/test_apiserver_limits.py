"""What is too much, too deep, too long or too odd is refused in the words of a real server, and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import hostile
import orjson
import pytest
from hostile import ADMIN, Ask, InProcess, Reply, deep, valid

from trainwright.api.kinds import CONFIG_MAP, JOB, NODE, POD, POD_TEMPLATE, SERVICE, TRAINJOB
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.bodies import OBJECT_DEPTH
from trainwright.controlplane.apiserver.wire.media import APPLY, JSON_PATCH, MERGE, STRATEGIC

MAPS = "/api/v1/namespaces/default/configmaps"
ONE = f"{MAPS}/a"


@pytest.fixture
def peer(server: ResourceServer) -> Iterator[InProcess]:
    peer = InProcess(server)
    server.create(CONFIG_MAP, "default", valid(CONFIG_MAP))
    yield peer
    peer.close()


def patch(peer: InProcess, media: str, body: Any, query: str = "", path: str = ONE) -> Reply:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return peer.send(Ask("PATCH", path, query, content, {"content-type": media}))


@pytest.mark.parametrize("levels", [OBJECT_DEPTH + 1, 200, 260, 900, 2000, 1_000_000])
@pytest.mark.parametrize(
    ("method", "path", "media"),
    [
        ("POST", MAPS, "application/json"),
        ("POST", MAPS, "application/yaml"),
        ("PUT", ONE, "application/json"),
        ("DELETE", ONE, "application/json"),
        ("PATCH", ONE, MERGE),
        ("PATCH", ONE, STRATEGIC),
        ("PATCH", ONE, JSON_PATCH),
        ("PATCH", ONE, APPLY),
        ("POST", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs", "application/json"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json"),
    ],
)
@pytest.mark.parametrize("shape", ["objects", "lists"])
def test_depth(peer: InProcess, method: str, path: str, media: str, levels: int, shape: str) -> None:
    inner = deep(levels) if shape == "objects" else deep(levels, "[", "]")
    body = b'{"metadata":{"name":"a"},"data":' + inner + b"}"
    if media == JSON_PATCH:
        body = b'[{"op":"add","path":"/data","value":' + inner + b"}]"
    before = time.process_time()
    reply = peer.send(Ask(method, path, "fieldManager=me", body[: 3 << 20], {"content-type": media}))
    if method == "DELETE" and levels < 120:
        assert reply.status == 200  # it does not look at what it does not know
        return
    assert reply.status in (400, 422, 500), reply
    assert reply.status != 500 or media == APPLY  # a field that the kind does not have, as recorded
    assert time.process_time() - before < 5
    assert peer.server.get(CONFIG_MAP, "default", "a").object["data"] == {"a": "b"}


@pytest.mark.medium
@pytest.mark.parametrize("steps", [110, 300, 3000])
def test_depth_cannot_be_reached_in_steps(peer: InProcess, steps: int) -> None:
    nested = [{"op": "copy", "from": "", "path": "/metadata/spare"}] * steps
    assert patch(peer, JSON_PATCH, nested).status in (400, 422)
    pushed = [
        {"op": "add", "path": "/x", "value": {}},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "add", "path": "/x", "value": {}},
    ]
    pushed += [
        {"op": "move", "from": "/y", "path": "/x/y"},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "add", "path": "/x", "value": {}},
    ] * steps
    assert patch(peer, JSON_PATCH, pushed).status in (400, 422)


def test_copies_do_not_double_the_object_for_ever(peer: InProcess) -> None:
    """Thirty copies of a map into itself would make a gigabyte of it."""
    text = "x" * 1000
    steps = [{"op": "add", "path": "/data", "value": {"a": text}}]
    steps += [{"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(30)]
    before = time.process_time()
    reply = patch(peer, JSON_PATCH, steps)
    assert (reply.status, reply.status_object["reason"]) == (422, "Invalid")
    assert time.process_time() - before < 5


def test_operations_of_a_json_patch(peer: InProcess) -> None:
    operation = {"op": "test", "path": "/data/a", "value": "b"}
    assert patch(peer, JSON_PATCH, [operation] * 10_000).status == 200
    reply = patch(peer, JSON_PATCH, [operation] * 10_001)
    assert (reply.status, reply.status_object["reason"]) == (413, "RequestEntityTooLarge")
    assert "maximum operations in a JSON patch is 10000, got 10001" in reply.status_object["message"]


def test_an_object_does_not_grow_beyond_what_can_be_sent(peer: InProcess) -> None:
    pod = "/api/v1/namespaces/default/podtemplates"
    peer.send(Ask("POST", pod, body=orjson.dumps(valid(POD) | {"kind": "PodTemplate"})))
    codes = [patch(peer, MERGE, {"data": {f"k{number}": "x" * 900_000}}).status for number in range(5)]
    assert codes[-1] in (413, 422)
    assert len(peer.server.get(CONFIG_MAP, "default", "a").data) < 3 << 20


@pytest.mark.parametrize(
    "body",
    [
        b"a: &a [x,x]\nb: &b [*a,*a,*a]\nc: [*b,*b,*b]",
        b"metadata: {name: b}\ndata: {a: &x v, b: *x}",
        b"metadata: {name: b}\ndata: {a: .nan}",
        b"metadata: {name: b}\ndata: {a: -.inf}",
        b"metadata: {name: b}\ndata: {a: !!binary aGk=}",
        b"metadata: {name: b}\ndata: {a: !!python/object/apply:os.system [x]}",
        b"metadata: {name: b}\ndata: {a: !!timestamp x}",
        b'metadata: {name: b}\ndata: {a: "\\ud800"}',
        b"--- {}\n--- {}",
        b"? [a]\n: b",
        b"a: 0x" + b"f" * 9000,
        b"a: " + b"9" * 9000,
        b"\xff\xfe\xfd",
        b"a: b: c",
    ],
)
def test_yaml_that_is_refused(peer: InProcess, body: bytes) -> None:
    reply = peer.send(Ask("POST", MAPS, body=body, headers={"content-type": "application/yaml"}))
    assert (reply.status, reply.status_object["reason"]) == (400, "BadRequest"), reply


@pytest.mark.medium
def test_yaml_numbers_in_base_sixty_are_text(peer: InProcess) -> None:
    digits = b":".join([b"1"] * 300_000)
    before = time.process_time()
    body = b"metadata: {name: b}\ndata: {time: 1:30, long: " + digits + b"}"
    assert peer.send(Ask("POST", MAPS, body=body, headers={"content-type": "application/yaml"})).status == 201
    assert time.process_time() - before < 5
    assert peer.server.get(CONFIG_MAP, "default", "b").object["data"]["time"] == "1:30"


@pytest.mark.parametrize(
    "body",
    [b'{"a":NaN}', b'{"a":Infinity}', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b"\xff\xfe{\0}\0", b"", b" ", b"{", b"\0" * 9],
)
def test_invalid_json_is_a_bad_request(peer: InProcess, body: bytes) -> None:
    reply = peer.send(Ask("POST", MAPS, body=body))
    assert (reply.status, reply.status_object["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("number", [10**30, 2**64, -(2**70), 1e300])
def test_numbers_beyond_64_bits(peer: InProcess, number: float) -> None:
    job = valid(JOB)
    job["spec"]["parallelism"] = number
    reply = peer.send(Ask("POST", JOB.path("default"), body=hostile.dumps(job)))
    assert (reply.status, reply.status_object["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("limit=" + "9" * 30, 400, "value out of range"),
        ("limit=" + "9" * 5000, 400, "value out of range"),
        ("limit=٣", 400, "invalid syntax"),
        ("limit=1_000", 400, "invalid syntax"),
        ("timeoutSeconds=" + "9" * 400, 400, "value out of range"),
        (f"limit={2**63 - 1}", 200, ""),
        ("resourceVersion=" + "9" * 18, 504, "Too large resource version"),
        ("resourceVersion=" + "9" * 31, 400, "value out of range"),
        ("resourceVersion=" + "9" * 5000, 400, "value out of range"),
        ("continue=" + hostile.token(10**9, "default/a\0"), 504, "Too large resource version"),
        ("continue=" + hostile.token(10**30, "default/a\0"), 400, "invalid continue token"),
        ("continue=" + hostile.token(-2, "default/a\0"), 400, "invalid continue token"),
        ("continue=" + hostile.token(True, "default/a\0"), 400, "invalid continue token"),
        ("continue=" + hostile.token(5, ["a"]), 400, "invalid continue token"),
        ("continue=" + hostile.token(5, "a", "v1"), 400, "invalid continue token"),
        ("continue=\0\0\0", 400, "invalid continue token"),
        ("labelSelector=a in (" + "b," * 20_000 + "b)", 200, ""),
        ("labelSelector=" + "a=b," * 10_000 + "a=b", 200, ""),
        ("labelSelector=a>²", 400, "must be an integer"),
        ("labelSelector=a>" + "9" * 60, 400, "must be an integer"),
        ("labelSelector=" + "(" * 10_000, 400, "expected: !, identifier"),
        ("fieldSelector=" + "metadata.name=a," * 10_000 + "=", 400, "invalid selector"),
    ],
)
def test_parameters(peer: InProcess, query: str, status: int, text: str) -> None:
    before = time.monotonic()
    name, _, value = query.partition("=")
    reply = peer.send(Ask("GET", MAPS, f"{name}={quote(value)}"))
    assert reply.status == status, reply
    assert text in reply.body.decode()
    assert time.monotonic() - before < 10


@pytest.mark.parametrize("version", ["9" * 31, "9" * 5000, "x"])
def test_versions_that_are_none(peer: InProcess, version: str) -> None:
    """A 500, as recorded of a real server for versions that it cannot read."""
    for ask in (Ask("GET", ONE, f"resourceVersion={version}"), Ask("GET", MAPS, f"watch=1&resourceVersion={version}")):
        reply = peer.send(ask)
        assert reply.status == 500
        assert "strconv.ParseUint" in reply.status_object["message"]
    put = valid(CONFIG_MAP)
    put["metadata"]["resourceVersion"] = version
    assert peer.send(Ask("PUT", ONE, body=orjson.dumps(put))).status == 500


@pytest.mark.parametrize("name", ["a\0b", "a/b", "..", "%2e%2e", "a%00b", "é", "a b", "-", "x" * 5000, "A", "a:b"])
def test_names_that_are_none(peer: InProcess, name: str) -> None:
    obj = {"metadata": {"name": name}}
    reply = peer.send(Ask("POST", MAPS, body=orjson.dumps(obj)))
    assert (reply.status, reply.status_object["reason"]) == (422, "Invalid")
    assert peer.send(Ask("GET", f"{MAPS}/{name}")).status in (404, 405)


@pytest.mark.parametrize("method", ["BREW", "TRACE", "CONNECT", "get", "X" * 5000])
def test_methods_that_do_not_exist(peer: InProcess, method: str) -> None:
    reply = peer.send(Ask(method, ONE))
    assert (reply.status, reply.status_object["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    "fields", [{"f:data": 5}, {"f:data": {"k:{": {}}}, {"f:data": [1]}, {"x": {}}, {"f:metadata": {}}, {"k:{}": {}}]
)
def test_field_owners_that_make_no_sense(peer: InProcess, fields: Any) -> None:
    entry = {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    put = {**valid(CONFIG_MAP), "metadata": {"name": "a", "managedFields": [entry]}}
    assert peer.send(Ask("PUT", ONE, body=orjson.dumps(put))).status in (200, 400, 422)
    for query in ("fieldManager=other&force=true", "fieldManager=m"):
        applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "c"}}
        assert patch(peer, APPLY, applied, query).status in (200, 409)
    stored = peer.server.get(CONFIG_MAP, "default", "a").object
    assert (stored["metadata"]["name"], stored["metadata"]["namespace"], stored["data"]) == ("a", "default", {"a": "c"})


def test_grace_periods_without_end(peer: InProcess) -> None:
    pod = valid(POD)
    pod["spec"]["schedulingGates"] = []
    peer.send(Ask("POST", POD.path("default"), body=orjson.dumps(pod)))
    peer.send(Ask("POST", f"{POD.path('default', 'a')}/binding", body=b'{"target":{"name":"n"}}'))
    body = orjson.dumps({"gracePeriodSeconds": 2**63 - 1})
    assert peer.send(Ask("DELETE", POD.path("default", "a"), body=body)).status == 200
    assert peer.send(Ask("DELETE", POD.path("default", "a"), "gracePeriodSeconds=0")).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/namespaces/default/pods/a/binding", {"target": [None]}),
        ("/api/v1/namespaces/default/pods/a/eviction", {"deleteOptions": 5}),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": [None]}),
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", [1]),
    ],
)
def test_bodies_of_the_wrong_type(peer: InProcess, path: str, body: Any) -> None:
    reply = peer.send(Ask("POST", path, body=orjson.dumps(body)))
    assert reply.status in (400, 404, 422, 500)
    assert reply.status_object["kind"] == "Status"


@pytest.mark.parametrize("token", [None, "", "wrong", ADMIN + "x", ADMIN[:-1], "é" * 20, "a.b.c"])
def test_nothing_is_open_without_the_token(peer: InProcess, token: str | None) -> None:
    """Without one 403, with a wrong one 401, whatever is asked; only health and version are everybody's."""
    for path in ("/readyz", "/livez", "/healthz", "/version", "/readyz/log"):
        assert peer.send(Ask("GET", path, token=token)).status == 200
    paths = [
        "/",
        "/api",
        "/apis",
        "/api/v1",
        "/openapi/v2",
        "/openapi/v3",
        "/metrics",
        "/versionx",
        "/versions",
        MAPS,
        ONE,
        "/none",
    ]
    paths += [
        TRAINJOB.path("default"),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "//api/v1",
        "/api/v1/../../readyz",
    ]
    for path in paths:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "BREW"):
            reply = peer.send(Ask(method, path, token=token, body=b"{}"))
            assert reply.status == (401 if token else 403), (method, path, reply)


def test_progress_reports_are_the_only_other_door(peer: InProcess) -> None:
    reply = peer.send(Ask("POST", f"{TRAINJOB.path('default', 'a')}/status", body=b"{}", token="wrong"))
    assert (reply.status, reply.status_object["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"conditions": [[]]}},
        {"status": {"addresses": {"a": 1}}},
        {"status": 5},
        {"status": {"nodeInfo": []}},
        {"spec": [1]},
        {"spec": {"taints": "x"}},
    ],
)
def test_a_node_that_could_not_be_shown_is_not_stored(peer: InProcess, change: dict[str, Any]) -> None:
    """Found by the fuzz: `kubectl get nodes` failed ever after."""
    peer.send(Ask("POST", NODE.path(), body=orjson.dumps(valid(NODE))))
    for path in (NODE.path(None, "a"), NODE.path(None, "a") + "/status"):
        assert patch(peer, MERGE, change, path=path).status in (200, 400, 422)
    assert peer.send(Ask("POST", NODE.path(), body=orjson.dumps({**valid(NODE, "b"), **change}))).status in (400, 422)
    assert peer.send(Ask("GET", NODE.path(), headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})).status == 200


def test_services_of_the_wrong_type(peer: InProcess) -> None:
    """Found by the fuzz: a spec that is a list."""
    path = SERVICE.path("default")
    peer.send(Ask("POST", path, body=orjson.dumps(valid(SERVICE))))
    for spec in ([["a", 1]], [1], "x", {"ports": [5]}, {"ports": 5}, {"type": []}):
        broken = {**valid(SERVICE), "spec": spec}
        assert peer.send(Ask("PUT", f"{path}/a", body=orjson.dumps(broken))).status in (400, 422), spec
        assert peer.send(Ask("POST", path, body=orjson.dumps({**broken, "metadata": {"name": "b"}}))).status in (400, 422), spec


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ({"$retainKeys": False}, "invalid patch format of retainKeys"),
        ({"$setElementOrder/containers": 5}, "invalid patch format of setElementOrder list"),
        ({"$setElementOrder/containers": 5, "containers": []}, "invalid patch format of setElementOrder list"),
        ({"$deleteFromPrimitiveList/finalizers": "a"}, "invalid patch format of primitive list"),
    ],
)
def test_directives_of_the_wrong_type(peer: InProcess, directive: dict[str, Any], text: str) -> None:
    """Found by the fuzz."""
    reply = patch(peer, STRATEGIC, directive)
    assert (reply.status, reply.status_object["message"]) == (400, text)


@pytest.mark.medium
def test_strategic_patches_of_long_lists_take_no_time(peer: InProcess) -> None:
    """Each element is found at once: a comparison of all with all would take minutes, with everybody waiting."""
    env = [{"name": f"v{number}", "value": "x"} for number in range(20_000)]
    template = {"spec": {"containers": [{"name": "main", "image": "i", "env": env}]}}
    before = time.process_time()
    made = {"metadata": {"name": "long"}, "template": template}
    assert peer.send(Ask("POST", POD_TEMPLATE.path("default"), body=orjson.dumps(made))).status == 201
    change = [{"name": f"v{number}", "value": "y"} for number in reversed(range(10_000, 30_000))]
    order = [{"name": entry["name"]} for entry in change]
    container = {"name": "main", "env": change, "$setElementOrder/env": order}
    body = {"template": {"spec": {"containers": [container]}}}
    reply = patch(peer, STRATEGIC, body, path=POD_TEMPLATE.path("default", "long"))
    assert reply.status == 200
    assert len(reply.status_object["template"]["spec"]["containers"][0]["env"]) == 30_000
    assert time.process_time() - before < 20
