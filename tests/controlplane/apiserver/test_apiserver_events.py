"""One stored event in two groups, and the questions that nobody keeps: reviews and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jwt
import orjson
import pytest
from hostile import ADMIN, Ask, InProcess, valid

from trainwright.api.kinds import EVENT, NEW_EVENT, POD, SERVICE_ACCOUNT
from trainwright.controlplane.apiserver.auth.tokens import API_AUDIENCE
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.media import JSON_PATCH, MERGE, STRATEGIC

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


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
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
    assert client("PATCH", f"{NEW}/modern", operation, content_type=JSON_PATCH)["series"]["count"] == 7
    client("DELETE", f"{NEW}/modern")
    assert client("GET", f"{OLD}/modern", code=404)["message"] == 'events "modern" not found'
    assert client("GET", f"{NEW}/modern", code=404)["message"] == 'events "modern" not found'


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
        ({"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"expirationSeconds": "600"}, 400, "expirationSeconds"),
        ({"audiences": [1]}, 400, "audiences"),
        ({"boundObjectRef": {"kind": "Pod", "name": "none"}}, 404, 'pods "none" not found'),
        ({"boundObjectRef": {"kind": "ConfigMap", "name": "a"}}, 400, "cannot bind token"),
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
