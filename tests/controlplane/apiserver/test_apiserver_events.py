"""One stored event in two groups, and the questions that nobody keeps: reviews and tokens."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import jwt
import orjson
import pytest
from hostile import ADMIN, Ask, InProcess, valid

from trainwright.api.kinds import EVENT, NEW_EVENT, POD, SERVICE_ACCOUNT
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire import patch_types
from trainwright.controlplane.apiserver.wire.protobuf import MAGIC, decode_protobuf

OLD, NEW = EVENT.path("default"), NEW_EVENT.path("default")
ABOUT = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "u-1"}
MODERN = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "modern"},
    "eventTime": "2026-01-02T03:04:05.000006Z",
    "reportingController": "example.com/c",
    "reportingInstance": "c-1",
    "action": "Binding",
    "reason": "Tested",
    "regarding": ABOUT,
    "note": "a note",
    "type": "Normal",
    "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"},
}
CLASSIC = {
    "metadata": {"name": "classic"},
    "involvedObject": ABOUT,
    "reason": "Tested",
    "message": "a message",
    "type": "Warning",
    "source": {"component": "recorder", "host": "h"},
    "firstTimestamp": "2026-01-02T03:04:05Z",
    "lastTimestamp": "2026-01-02T03:04:06Z",
    "count": 3,
}


class Client:
    def __init__(self, peer: InProcess) -> None:
        self.peer = peer

    def __call__(
        self, method: str, path: str, body: Any = None, query: str = "", code: int = 200, **headers: str
    ) -> dict[str, Any]:
        content = b"" if body is None else orjson.dumps(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = self.peer.send(Ask(method, path, query, content, given))
        assert reply.status == code, reply
        self.headers = reply.headers
        return reply.status_object


@pytest.fixture
def client(server: ResourceServer) -> Iterator[Client]:
    peer = InProcess(server)
    yield Client(peer)
    peer.close()


def test_a_classic_event_in_the_newer_form(client: Client) -> None:
    stored = client("POST", OLD, CLASSIC, code=201)
    seen = client("GET", f"{NEW}/classic")
    assert seen["apiVersion"] == "events.k8s.io/v1"
    assert seen["metadata"]["uid"] == stored["metadata"]["uid"]
    assert {name: seen[name] for name in seen.keys() - {"metadata", "apiVersion", "kind"}} == {
        "regarding": ABOUT,
        "reason": "Tested",
        "note": "a message",
        "type": "Warning",
        "eventTime": None,
        "deprecatedSource": {"component": "recorder", "host": "h"},
        "deprecatedFirstTimestamp": "2026-01-02T03:04:05Z",
        "deprecatedLastTimestamp": "2026-01-02T03:04:06Z",
        "deprecatedCount": 3,
    }


def test_a_newer_event_in_the_classic_form(client: Client) -> None:
    created = client("POST", NEW, MODERN, code=201)
    assert {name: created[name] for name in MODERN.keys() - {"metadata"}} == {
        name: value for name, value in MODERN.items() if name != "metadata"
    }
    seen = client("GET", f"{OLD}/modern")
    expected = {"message": "a note", "involvedObject": ABOUT, "reportingComponent": "example.com/c", "action": "Binding"}
    assert {name: seen[name] for name in expected} == expected
    assert (seen["apiVersion"], seen["series"]["count"], seen["firstTimestamp"]) == ("v1", 2, None)
    assert not {"note", "regarding", "reportingController"} & seen.keys()


@pytest.mark.parametrize("media", [patch_types.MERGE, patch_types.STRATEGIC])
def test_changes_go_both_ways(client: Client, media: str) -> None:
    client("POST", NEW, MODERN, code=201)
    series = {"count": 5, "lastObservedTime": "2026-01-02T03:05:00.000000Z"}
    changed = client("PATCH", f"{NEW}/modern", {"series": series}, content_type=media)
    assert changed["series"] == series
    assert client("GET", f"{OLD}/modern")["series"] == series
    client("PATCH", f"{OLD}/modern", {"metadata": {"labels": {"a": "b"}}}, content_type=media)
    replaced = client("GET", f"{NEW}/modern")
    assert replaced["metadata"]["labels"] == {"a": "b"}
    assert client("PUT", f"{NEW}/modern", {**replaced, "series": {**series, "count": 6}})["series"]["count"] == 6
    stale = client("PUT", f"{NEW}/modern", replaced, code=409)
    assert stale["reason"] == "Conflict"
    operation = [{"op": "replace", "path": "/series/count", "value": 7}]
    assert client("PATCH", f"{NEW}/modern", operation, content_type=patch_types.JSON_PATCH)["series"]["count"] == 7
    client("DELETE", f"{NEW}/modern")
    assert client("GET", f"{OLD}/modern", code=404)["message"] == 'events "modern" not found'
    assert client("GET", f"{NEW}/modern", code=404)["message"] == 'events "modern" not found'


def test_apply(client: Client) -> None:
    for query, code in (("fieldManager=me", 201), ("fieldManager=me", 200)):
        client("PATCH", f"{NEW}/modern", MODERN, query, code, content_type=patch_types.APPLY)
    assert client("GET", f"{OLD}/modern")["message"] == "a note"
    assert client("PUT", f"{NEW}/other", {**MODERN, "metadata": {"name": "other"}}, code=201)["note"] == "a note"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"eventTime": None}, "eventTime: Required value"),
        ({"reportingController": ""}, "reportingComponent: Required value"),
        ({"action": None}, "action: Required value"),
        ({"reason": "x" * 129}, "reason: Invalid value"),
        ({"note": "x" * 1025}, "can have at most 1024 characters"),
        ({"type": "Other"}, "has invalid value: Other"),
        ({"deprecatedCount": 3}, "count: Invalid value"),
        ({"deprecatedFirstTimestamp": "2026-01-02T03:04:05Z"}, "needs to be unset"),
        ({"series": {"count": 1, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}}, "should be at least 2"),
    ],
)
def test_newer_event_requires_its_fields(client: Client, change: dict[str, Any], text: str) -> None:
    assert text in client("POST", NEW, {**MODERN, **change}, code=422)["message"]


def test_newer_event_has_immutable_fields(client: Client) -> None:
    client("POST", NEW, MODERN, code=201)
    for change in ({"reason": "Other"}, {"regarding": {**ABOUT, "name": "q"}}, {"type": "Warning"}):
        message = client("PATCH", f"{NEW}/modern", change, code=422, content_type=patch_types.MERGE)["message"]
        assert message.startswith('Event.events.k8s.io "modern" is invalid')
        assert "field is immutable" in message


def test_fields_of_the_other_form_are_unknown(client: Client) -> None:
    client("POST", NEW, {**MODERN, "message": "x"}, code=201)
    assert client.headers["warning"] == '299 - "unknown field \\"message\\""'
    strange = {**MODERN, "metadata": {"name": "b"}, "involvedObject": {}}
    assert "strict decoding error" in client("POST", NEW, strange, "fieldValidation=Strict", 400)["message"]


def test_lists_and_selectors_of_each_form(client: Client) -> None:
    client("POST", OLD, CLASSIC, code=201)
    client("POST", NEW, MODERN, code=201)

    def names(path: str, selector: str) -> list[str]:
        return [item["metadata"]["name"] for item in client("GET", path, query=f"fieldSelector={selector}")["items"]]

    assert names(NEW, "regarding.name=p,type=Normal") == ["modern"]
    assert names(NEW, "reportingController=example.com/c") == ["modern"]
    assert names(OLD, "involvedObject.name=p") == ["classic", "modern"]
    assert names("/apis/events.k8s.io/v1/events", "reason=Tested") == ["classic", "modern"]
    for path, selector in ((NEW, "involvedObject.name=p"), (OLD, "regarding.name=p")):
        client("GET", path, query=f"fieldSelector={selector}", code=400)
    page = client("GET", NEW, query="limit=1")
    rest = client("GET", NEW, query=f"limit=1&continue={page['metadata']['continue']}")
    assert [item["note"] for item in page["items"] + rest["items"]] == ["a message", "a note"]
    table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    rows = [client("GET", path, **table)["rows"] for path in (OLD, NEW)]
    assert [row["cells"] for row in rows[0]] == [row["cells"] for row in rows[1]]
    client("DELETE", NEW, query="fieldSelector=type%3DNormal")
    assert names(OLD, "") == ["classic"]


def test_watches_see_each_form(client: Client, server: ResourceServer) -> None:
    from trainwright.controlplane.embedded import EmbeddedCluster

    cluster = EmbeddedCluster(server)
    watches = {kind: cluster.watch(kind, "default", resource_version=str(server.store.revision)) for kind in (EVENT, NEW_EVENT)}
    client("POST", OLD, CLASSIC, code=201)
    assert next(watches[EVENT]).object["message"] == "a message"
    seen = next(watches[NEW_EVENT])
    assert (seen.type, seen.object["note"], seen.object["apiVersion"]) == ("ADDED", "a message", "events.k8s.io/v1")
    client("DELETE", f"{NEW}/classic")
    assert [next(watch).type for watch in watches.values()] == ["DELETED", "DELETED"]
    assert not cluster.list(NEW_EVENT, "default").items
    cluster.close()


def test_protobuf_of_the_newer_form() -> None:
    def part(number: int, content: bytes) -> bytes:
        return bytes((number << 3 | 2, len(content))) + content

    note = part(1, part(1, b"n")) + part(10, b"a note") + part(8, part(3, b"p"))
    body = MAGIC + part(1, part(1, b"events.k8s.io/v1") + part(2, b"Event")) + part(2, note)
    assert decode_protobuf(body) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "n"},
        "note": "a note",
        "regarding": {"name": "p"},
    }


def test_reviews(client: Client) -> None:
    access = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
    assert client("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", access, code=201)["status"]["allowed"]
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    assert client("POST", rules, {"spec": {"namespace": "default"}}, code=201)["status"]["resourceRules"][0]["verbs"] == ["*"]
    assert client("POST", rules, {}, code=400)["message"] == "no namespace on request"
    me = client("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, code=201)
    assert "system:masters" in me["status"]["userInfo"]["groups"]
    for group in ("authentication.k8s.io", "authorization.k8s.io"):
        assert client("GET", f"/apis/{group}/v1")["resources"]
        name = client("GET", f"/apis/{group}/v1")["resources"][0]["name"]
        client("GET", f"/apis/{group}/v1/{name}", code=405)


def token_of(client: Client, account: str = "default", code: int = 201, **spec: Any) -> dict[str, Any]:
    return client("POST", f"{SERVICE_ACCOUNT.path('default', account)}/token", {"spec": spec}, code=code)


def test_tokens_on_request(client: Client) -> None:
    client("POST", SERVICE_ACCOUNT.path("default"), {"metadata": {"name": "robot"}}, code=201)
    answer = token_of(client, "robot", audiences=["vault"], expirationSeconds=600)
    claims = jwt.decode(answer["status"]["token"], options={"verify_signature": False})
    assert (claims["aud"], claims["exp"] - claims["iat"]) == (["vault"], 600)
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert claims["kubernetes.io"]["serviceaccount"]["uid"]
    assert answer["spec"] == {"audiences": ["vault"], "expirationSeconds": 600, "boundObjectRef": None}
    assert token_of(client)["spec"]["expirationSeconds"] == 3600
    assert token_of(client, expirationSeconds=2**32)["spec"]["expirationSeconds"] == 86400


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": -1}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"expirationSeconds": "600"}, 400, "expirationSeconds"),
        ({"expirationSeconds": True}, 400, "expirationSeconds"),
        ({"audiences": "a"}, 400, "audiences"),
        ({"audiences": [1]}, 400, "audiences"),
        ({"boundObjectRef": {"kind": "Pod", "name": "none"}}, 404, 'pods "none" not found'),
        ({"boundObjectRef": {"kind": "ConfigMap", "name": "a"}}, 400, "cannot bind token"),
        ({"boundObjectRef": "a"}, 400, "boundObjectRef"),
    ],
)
def test_tokens_that_are_not_issued(client: Client, spec: dict[str, Any], code: int, text: str) -> None:
    assert text in token_of(client, code=code, **spec)["message"]


def test_tokens_bound_to_a_pod(client: Client) -> None:
    pod = client("POST", POD.path("default"), valid(POD, "p"), code=201)
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}
    claims = jwt.decode(token_of(client, boundObjectRef=reference)["status"]["token"], options={"verify_signature": False})
    assert claims["kubernetes.io"]["pod"] == {"name": "p", "uid": pod["metadata"]["uid"]}
    assert token_of(client, code=409, boundObjectRef={**reference, "uid": "other"})["reason"] == "Conflict"
    assert token_of(client, "none", code=404)["message"] == 'serviceaccounts "none" not found'


def test_token_is_recognised_only_for_its_audience(client: Client, server: ResourceServer) -> None:
    """It is recognised, and may do nothing; one for another audience is no token here."""
    token = token_of(client)["status"]["token"]
    refused = client.peer.send(Ask("GET", OLD, token=token))
    assert refused.status == 403
    assert 'User "system:serviceaccount:default:default" cannot list' in refused.status_object["message"]
    other = token_of(client, audiences=["vault"])["status"]["token"]
    assert client.peer.send(Ask("GET", OLD, token=other)).status == 401
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    status = client("POST", reviews, {"spec": {"token": token}}, code=201)["status"]
    assert (status["authenticated"], status["audiences"]) == (True, [API_AUDIENCE])
    assert status["user"]["username"] == "system:serviceaccount:default:default"
    assert not client("POST", reviews, {"spec": {"token": other}}, code=201)["status"]["authenticated"]
    assert client("POST", reviews, {"spec": {"token": other, "audiences": ["vault"]}}, code=201)["status"]["authenticated"]
    assert client("POST", reviews, {"spec": {"token": ADMIN}}, code=201)["status"]["user"]["groups"][0] == "system:masters"
    assert not client("POST", reviews, {"spec": {"token": "x"}}, code=201)["status"]["authenticated"]


@pytest.mark.medium
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl(peer: Any) -> None:
    peer.json("POST", OLD, CLASSIC)
    peer.json("POST", NEW, MODERN)

    def kubectl(*arguments: str) -> str:
        env = {**os.environ, "KUBECONFIG": str(peer.kubeconfig)}
        done = subprocess.run(["kubectl", *arguments], capture_output=True, text=True, env=env, timeout=60, check=False)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    assert "a message" in kubectl("get", "events.events.k8s.io")
    assert "a note" in kubectl("get", "events.v1.events.k8s.io", "modern", "-o", "jsonpath={.note}")
    assert "a message" in kubectl("get", "events")
    told = kubectl("events", "-n", "default")
    assert "a note" in told
    assert "a message" in told
    assert "system:masters" in kubectl("auth", "whoami")
    assert "*.*" in kubectl("auth", "can-i", "--list")
    assert kubectl("create", "token", "default", "--duration=10m").count(".") == 2
