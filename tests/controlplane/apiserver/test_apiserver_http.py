"""The API over TLS: who may come in, how answers look, what requests are refused."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
from collections.abc import Callable
from typing import Any

import orjson
import pytest
import yaml

from trainwright.api.kinds import CONFIG_MAP, EVENT, JOB, JOBSET, POD, TRAINJOB
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.connections import HEAD_BYTES, ConnectionTimeouts
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer

pytestmark = pytest.mark.medium
Manifest = Callable[..., dict[str, Any]]
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("path", "token", "status", "text"),
    [
        ("/readyz", None, 200, "ok"),
        ("/livez", None, 200, "ok"),
        ("/healthz", None, 200, "ok"),
        ("/readyz/ping", None, 200, "ok"),
        ("/readyz/nope", None, 404, "404 page not found"),
        ("/version", None, 200, '"gitVersion"'),
        ("/version/", None, 200, '"gitVersion"'),
        ("/api", None, 403, 'forbidden: User \\"system:anonymous\\" cannot get path \\"/api\\"'),
        (
            MAPS,
            None,
            403,
            'configmaps is forbidden: User \\"system:anonymous\\" cannot list resource \\"configmaps\\" in API group',
        ),
        (MAPS, "wrong", 401, '"Unauthorized"'),
        ("/apis", "wrong", 401, '"Unauthorized"'),
        (MAPS, "", 200, '"ConfigMapList"'),
        ("/apis/batch/v1/namespaces/default/jobs/", "", 200, '"JobList"'),
        ("/api/v1/namespaces/default/widgets", "", 404, "the server could not find the requested resource"),
        ("/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/widgets", "", 404, "404 page not found"),
        ("/apis/trainer.kubeflow.org/v9/namespaces/default/trainjobs", "", 404, "404 page not found"),
        ("/api/v1/namespaces/default/configmaps/a/status", "", 404, "the server could not find the requested resource"),
        ("/api/v1/pods/x", "", 404, "the server could not find"),
        ("/openapi/v2", "", 200, '"swagger":"2.0"'),
        ("/nope", "", 404, "404 page not found"),
        (f"{MAPS}/none", "", 404, 'configmaps \\"none\\" not found'),
        (f"{MAPS}?limit=abc", "", 400, "strconv.ParseInt"),
        (f"{MAPS}?watch=1&resourceVersion=abc", "", 500, "strconv.ParseUint"),
        (f"{MAPS}?resourceVersion=9999999", "", 504, "Too large resource version"),
        (f"{MAPS}?resourceVersionMatch=Exact", "", 422, "forbidden unless resourceVersion is provided"),
    ],
)
def test_get(peer: Any, path: str, token: str | None, status: int, text: str) -> None:
    answer = peer.send("GET", path, token=token)
    assert answer.status == status
    assert text in answer.data.decode()


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "FOO"])
def test_methods_that_a_collection_lacks(peer: Any, method: str) -> None:
    answer = peer.json(method, MAPS, {})
    assert (answer.status, answer.body["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.parametrize(
    ("content_type", "body", "status", "text"),
    [
        ("application/json", b"{", 400, "json parse error"),
        ("application/json", b"[]", 400, "no JSON object"),
        (
            "text/plain",
            b"x",
            415,
            "accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        ),
        ("application/vnd.kubernetes.protobuf", b"k8s\0", 400, "cannot be read from protobuf"),
        ("application/yaml", b"a: [", 400, "yaml: while parsing"),
        ("application/yaml", b"metadata: &x {name: a}\ndata: *x", 400, "aliases are not supported"),
        ("application/yaml", b"metadata: {name: a}\ndata: {when: 2026-01-02}", 201, '"when":"2026-01-02"'),
        ("application/json", b'{"metadata":{"name":"' + b"x" * (3 << 20) + b'"}}', 413, "limit is 3145728"),
    ],
)
def test_bodies(peer: Any, content_type: str, body: bytes, status: int, text: str) -> None:
    answer = peer.send("POST", MAPS, body, **{"Content-Type": content_type})
    assert answer.status == status
    assert text in answer.data.decode()


def test_create_answers_201_and_dry_run_stores_nothing(peer: Any, manifest: Manifest) -> None:
    assert peer.json("POST", f"{MAPS}?dryRun=All", manifest(CONFIG_MAP, "a")).status == 201
    assert peer.json("GET", f"{MAPS}/a").status == 404
    assert peer.json("POST", MAPS, manifest(CONFIG_MAP, "a")).status == 201
    assert (
        peer.json("POST", f"{MAPS}?dryRun=Some", manifest(CONFIG_MAP, "a"))
        .body["message"]
        .startswith("CreateOptions.meta.k8s.io")
    )


def test_conflict_is_a_status(peer: Any, manifest: Manifest) -> None:
    created = peer.json("POST", MAPS, manifest(CONFIG_MAP, "a")).body
    peer.json("PATCH", f"{MAPS}/a", {"data": {"k": "v"}}, **{"Content-Type": "application/merge-patch+json"})
    answer = peer.json("PUT", f"{MAPS}/a", {**created, "data": {"k": "w"}})
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again",
        "reason": "Conflict",
        "code": 409,
        "details": {"name": "a", "kind": "configmaps"},
    }


def test_unknown_fields_warn_or_refuse(peer: Any, manifest: Manifest) -> None:
    bogus = manifest(TRAINJOB, "a", spec={"bogus": 1})
    assert peer.json("POST", f"{JOBS}?fieldValidation=Strict", bogus).status == 400
    answer = peer.json("POST", JOBS, bogus)
    assert answer.status == 201
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.bogus\\""'


def test_apply_needs_a_manager(peer: Any, manifest: Manifest) -> None:
    apply = {"Content-Type": "application/apply-patch+yaml"}
    assert peer.json("PATCH", f"{MAPS}/a", manifest(CONFIG_MAP, "a"), **apply).body["details"]["kind"] == "PatchOptions"
    assert peer.json("PATCH", f"{MAPS}/a?fieldManager=me", manifest(CONFIG_MAP, "a"), **apply).status == 201
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}).encode()
    assert peer.json("PATCH", f"{MAPS}/a?fieldManager=me", text, **apply).body["data"] == {"k": "v"}


def test_list_views(peer: Any, manifest: Manifest) -> None:
    peer.json("POST", MAPS, manifest(CONFIG_MAP, "a", data={"k": "v"}))
    listed = peer.json("GET", MAPS).body
    assert listed["kind"] == "ConfigMapList"
    assert "kind" not in listed["items"][0]
    table = peer.json("GET", MAPS, Accept=TABLE).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = peer.json("GET", f"{MAPS}/a?includeObject=Object", Accept=TABLE).body
    assert whole["rows"][0]["object"]["data"] == {"k": "v"}
    partial = peer.json("GET", MAPS, Accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").body
    assert partial["kind"] == "PartialObjectMetadataList"
    assert set(partial["items"][0]) == {"kind", "apiVersion", "metadata"}
    assert yaml.safe_load(peer.send("GET", f"{MAPS}/a", Accept="application/yaml").data)["data"] == {"k": "v"}
    assert peer.json("GET", MAPS, Accept="text/plain").status == 406
    assert peer.json("GET", JOBS).body["metadata"]["continue"] == ""


def test_large_answers_are_packed_when_asked_for(peer: Any, manifest: Manifest) -> None:
    peer.json("POST", MAPS, manifest(CONFIG_MAP, "a", data={"k": "x" * 200_000}))
    answer = peer.send("GET", MAPS, stream=True, **{"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert orjson.loads(gzip.decompress(answer.read(decode_content=False)))["items"]
    assert "Content-Encoding" not in peer.send("GET", MAPS).headers


def test_binding_and_log_without_a_node(peer: Any, manifest: Manifest) -> None:
    pods = "/api/v1/namespaces/default/pods"
    two = manifest(POD, "a", spec={"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "i"}]})
    peer.json("POST", pods, two)
    message = peer.json("GET", f"{pods}/a/log").body["message"]
    assert message == "a container name must be specified for pod a, choose one of: [x y]"
    assert peer.send("GET", f"{pods}/a/log?container=x").status == 204
    assert peer.json("GET", f"{pods}/a/log?container=x&tailLines=-1").status == 422
    assert peer.json("POST", f"{pods}/a/binding", {"target": {"kind": "Node", "name": "n1"}}).status == 201
    assert peer.json("GET", f"{pods}/a").body["spec"]["nodeName"] == "n1"
    lost = peer.json("GET", f"{pods}/a/log?container=x")
    assert (lost.status, lost.body["message"]) == (404, 'pods "n1" not found')


def test_deleting_a_collection_stays_in_its_namespace(peer: Any, manifest: Manifest) -> None:
    peer.json("POST", MAPS, manifest(CONFIG_MAP, "a"))
    assert peer.json("DELETE", "/api/v1/configmaps").status == 405
    assert peer.json("DELETE", "/api/v1/namespaces").status == 405
    assert [item["metadata"]["name"] for item in peer.json("DELETE", MAPS).body["items"]] == ["a"]
    assert peer.json("GET", MAPS).body["items"] == []


def test_discovery_in_both_forms(peer: Any) -> None:
    old = peer.json("GET", "/apis").body
    groups = {group["name"] for group in old["groups"]}
    ours = {"trainer.kubeflow.org", "jobset.x-k8s.io", "batch", "coordination.k8s.io"}
    ours |= {"events.k8s.io", "authentication.k8s.io"}
    ours |= {"discovery.k8s.io", "scheduling.k8s.io", "node.k8s.io", "apiextensions.k8s.io", "authorization.k8s.io"}
    ours |= {"rbac.authorization.k8s.io", "apps", "networking.k8s.io", "policy"}
    assert groups == ours | {"scheduling.x-k8s.io", "scheduling.volcano.sh"}
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    new = peer.json("GET", "/apis", Accept=accept)
    assert new.headers["Content-Type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for item in new.body["items"]:
        for version in item["versions"]:
            listed = peer.json("GET", f"/apis/{item['metadata']['name']}/{version['version']}").body["resources"]
            assert {entry["name"] for entry in listed if "/" not in entry["name"]} == {
                entry["resource"] for entry in version["resources"]
            }
    assert (
        peer.send(
            "GET", "/api", **{"If-None-Match": peer.send("GET", "/api", Accept=accept).headers["ETag"], "Accept": accept}
        ).status
        == 304
    )


def test_openapi_leaves_validation_to_the_server(peer: Any) -> None:
    paths = peer.json("GET", "/openapi/v3").body["paths"]
    assert "apis/trainer.kubeflow.org/v1alpha1" in paths
    document = peer.json("GET", paths["apis/trainer.kubeflow.org/v1alpha1"]["serverRelativeURL"]).body
    path = document["paths"]["/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"]
    assert "fieldValidation" in {parameter["name"] for parameter in path["patch"]["parameters"]}
    schema = document["components"]["schemas"]["org.kubeflow.trainer.v1alpha1.TrainJob"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
    ]


@pytest.mark.parametrize(
    ("kind", "status", "cells"),
    [
        (TRAINJOB, None, ["a", None]),
        (TRAINJOB, {"conditions": [
            {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
            for kind in ("Suspended", "Complete")]}, ["a", "Complete"]),
        (JOB, {"succeeded": 1, "completionTime": "2026-01-02T03:04:05Z", "conditions": [
            {"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]}, ["a", "Complete", "1/1", ""]),
        (JOBSET, {"restarts": 2, "terminalState": "Failed"}, ["a", "Failed", "2", None]),
        (POD, {"phase": "Running", "containerStatuses": [
            {"name": "main", "ready": True, "restartCount": 0, "image": "i", "imageID": "", "state": {"running": {}}}]},
         ["a", "1/1", "Running", "0"]),
        (POD, {"phase": "Failed", "containerStatuses": [
            {"name": "main", "ready": False, "restartCount": 2, "image": "i", "imageID": "",
             "state": {"terminated": {"exitCode": 137}}}]},
         ["a", "0/1", "ExitCode:137", "2"]),
    ],
)  # fmt: skip
def test_columns(peer: Any, manifest: Manifest, kind: Any, status: Any, cells: list[Any]) -> None:
    path = kind.path("default")
    assert peer.json("POST", path, manifest(kind, "a")).status == 201
    if status:
        patched = peer.json("PATCH", f"{path}/a/status", {"status": status}, **{"Content-Type": "application/merge-patch+json"})
        assert patched.status == 200, patched.body
    assert peer.json("GET", path, Accept=TABLE).body["rows"][0]["cells"][: len(cells)] == cells


def test_columns_of_events(peer: Any, manifest: Manifest) -> None:
    fields = {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Tested",
        "message": "m",
        "type": "Normal",
    }
    peer.json("POST", EVENT.path("default"), manifest(EVENT, "e", **fields))
    assert peer.json("GET", EVENT.path("default"), Accept=TABLE).body["rows"][0]["cells"][1:4] == ["Normal", "Tested", "pod/p"]


def test_secrets_stay_out_of_errors(peer: Any) -> None:
    answer = peer.send("GET", MAPS, token="hunter2hunter2hunter2")
    assert "hunter2" not in answer.data.decode()
    assert peer.credentials.admin_token not in repr(peer.credentials) + repr(peer.tokens)


@pytest.mark.parametrize(
    ("sent", "status", "reason"),
    [
        (b"FOO /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", 405, "MethodNotAllowed"),
        (b"FOO /api/v1/po", 405, "MethodNotAllowed"),  # as far as it has come
        (b"{}FOO /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", 405, "MethodNotAllowed"),  # after a body that came late
        (b"no request at all\r\n\r\n", 400, "BadRequest"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 400, "BadRequest"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"y" * (HEAD_BYTES + 1), 431, "RequestHeaderFieldsTooLarge"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ", 408, "Timeout"),
    ],
)
def test_bad_requests_get_a_status_and_close_the_connection(
    server: ResourceServer, sent: bytes, status: int, reason: str
) -> None:
    with (
        serve(Api(server, Tokens("a" * 32, b"k" * 32)), timeouts=ConnectionTimeouts(head=0.2)) as serving,
        socket.create_connection(("127.0.0.1", serving.port), 20) as client,
    ):
        with contextlib.suppress(ConnectionError):  # hung up on while still sending
            client.sendall(sent)
        answer = http.client.HTTPResponse(client)
        answer.begin()
        body = json.loads(answer.read())
    assert (answer.status, body["reason"], body["code"], answer.getheader("connection")) == (status, reason, status, "close")
