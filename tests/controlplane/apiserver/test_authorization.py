"""What a service account may do follows from the roles and bindings that are applied, as on a cluster with RBAC."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from trainwright.controlplane.apiserver.auth.authorizer import ADMINISTRATOR, Access, Authorizer, User
from trainwright.controlplane.apiserver.http.app import access_of
from trainwright.controlplane.apiserver.wire.requests import Request

RBAC = "rbac.authorization.k8s.io"
RUNNER = User("system:serviceaccount:team:runner", ("system:serviceaccounts", "system:serviceaccounts:team"))
READ_PODS = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}
ANYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def role(kind: Kind, rule: dict[str, Any], name: str = "reads", namespace: str = "") -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": f"{RBAC}/v1", "kind": kind.kind, "metadata": {"name": name, **where}, "rules": [rule]}


def binding(kind: Kind, to: Kind, subject: dict[str, Any], namespace: str = "", name: str = "reads") -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    reference = {"apiGroup": RBAC, "kind": to.kind, "name": name}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind.kind,
        "metadata": {"name": "b", **where},
        "roleRef": reference,
        "subjects": [subject],
    }


def authorizer(*objects: dict[str, Any]) -> Authorizer:
    return Authorizer(lambda kind: [obj for obj in objects if obj["kind"] == kind.kind])


ACCOUNT = {"kind": "ServiceAccount", "name": "runner", "namespace": "team"}


@pytest.mark.parametrize(
    ("rule", "access", "allowed"),
    [
        (READ_PODS, Access("get", "", "pods", "p", "team"), True),
        (READ_PODS, Access("get", "", "pods/log", "p", "team"), True),
        (READ_PODS, Access("get", "", "pods/exec", "p", "team"), False),
        (READ_PODS, Access("list", "", "pods", "", "team"), False),
        (READ_PODS, Access("get", "batch", "pods", "p", "team"), False),
        (READ_PODS, Access("get", "", "pods", "p", "other"), False),
        (READ_PODS, Access("get", "", "pods", "p"), False),
        (READ_PODS | {"resourceNames": ["p"]}, Access("get", "", "pods", "p", "team"), True),
        (READ_PODS | {"resourceNames": ["p"]}, Access("get", "", "pods", "q", "team"), False),
        (READ_PODS | {"resourceNames": ["p"]}, Access("get", "", "pods", "", "team"), False),
        (READ_PODS | {"resources": ["*/log"]}, Access("get", "", "pods/log", "p", "team"), True),
        (READ_PODS | {"resources": ["*/log"]}, Access("get", "", "pods", "p", "team"), False),
        (ANYTHING, Access("deletecollection", "batch", "jobs/status", "", "team"), True),
        (ANYTHING, Access("get", path="/metrics"), False),
        (READ_PODS, Access("get", path="/apis/batch/v1"), True),
        (READ_PODS, Access("create", "authorization.k8s.io", "selfsubjectaccessreviews"), True),
        (READ_PODS, Access("create", "authorization.k8s.io", "subjectaccessreviews"), False),
    ],
)
def test_a_role_in_a_namespace(rule: dict[str, Any], access: Access, allowed: bool) -> None:
    objects = role(ROLE, rule, namespace="team"), binding(ROLE_BINDING, ROLE, ACCOUNT, "team")
    assert authorizer(*objects).allows(RUNNER, access) is allowed
    assert authorizer(*objects).allows(ADMINISTRATOR, access)


def test_a_cluster_role_counts_where_it_is_bound() -> None:
    reads = role(CLUSTER_ROLE, READ_PODS)
    everywhere = authorizer(reads, binding(CLUSTER_ROLE_BINDING, CLUSTER_ROLE, ACCOUNT))
    in_one = authorizer(reads, binding(ROLE_BINDING, CLUSTER_ROLE, ACCOUNT, "other"))
    for namespace in ("team", "other", ""):
        asked = Access("get", "", "pods", "p", namespace)
        assert everywhere.allows(RUNNER, asked)
        assert in_one.allows(RUNNER, asked) is (namespace == "other")


def test_a_role_of_another_namespace_is_another() -> None:
    objects = role(ROLE, READ_PODS, namespace="other"), binding(ROLE_BINDING, ROLE, ACCOUNT, "team")
    assert not authorizer(*objects).allows(RUNNER, Access("get", "", "pods", "p", "team"))


@pytest.mark.parametrize(
    ("subject", "bound"),
    [
        (ACCOUNT, True),
        (ACCOUNT | {"namespace": "other"}, False),
        ({"kind": "ServiceAccount", "name": "runner"}, True),  # of the binding's own namespace
        ({"kind": "User", "name": "system:serviceaccount:team:runner"}, True),
        ({"kind": "User", "name": "runner"}, False),
        ({"kind": "Group", "name": "system:serviceaccounts:team"}, True),
        ({"kind": "Group", "name": "system:serviceaccounts:other"}, False),
    ],
)
def test_subjects(subject: dict[str, Any], bound: bool) -> None:
    objects = role(ROLE, READ_PODS, namespace="team"), binding(ROLE_BINDING, ROLE, subject, "team")
    assert authorizer(*objects).allows(RUNNER, Access("get", "", "pods", "p", "team")) is bound


def test_non_resource_urls() -> None:
    rule = {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}
    objects = role(CLUSTER_ROLE, rule), binding(CLUSTER_ROLE_BINDING, CLUSTER_ROLE, ACCOUNT)
    paths = {
        path: authorizer(*objects).allows(RUNNER, Access("get", path=path)) for path in ("/metrics", "/logs/a", "/logs", "/x")
    }
    assert paths == {"/metrics": True, "/logs/a": True, "/logs": False, "/x": False}


@pytest.fixture
def runner(peer: Any) -> str:
    """The token of an account that may list and watch ConfigMaps, and read one of them, over HTTPS."""
    peer.json("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "runner"}})
    prefix = f"/apis/{RBAC}/v1/namespaces/default"
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["get", "patch"]},
    ]
    made = peer.json("POST", f"{prefix}/roles", {**role(ROLE, {}), "rules": rules})
    assert made.status == 201, made.body
    subject = {"kind": "ServiceAccount", "name": "runner", "namespace": "default"}
    made = peer.json("POST", f"{prefix}/rolebindings", binding(ROLE_BINDING, ROLE, subject))
    assert made.status == 201, made.body
    for name in ("mine", "other"):
        peer.json("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
    issued = peer.json("POST", "/api/v1/namespaces/default/serviceaccounts/runner/token", {"spec": {}})
    return str(issued.body["status"]["token"])


def test_requests_of_a_service_account(peer: Any, runner: str) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    allowed = [("GET", maps, None), ("GET", f"{maps}/mine", None), ("PATCH", f"{maps}/mine", {"data": {"a": "b"}})]
    for method, path, body in allowed:
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        assert peer.json(method, path, body, token=runner, **headers).status == 200, path
    for method, path, body in (
        ("GET", f"{maps}/other", None),
        ("POST", maps, {"metadata": {"name": "new"}}),
        ("DELETE", f"{maps}/mine", None),
        ("DELETE", maps, None),
        ("GET", "/api/v1/configmaps", None),
        ("GET", "/api/v1/namespaces/default/secrets", None),
        ("GET", "/metrics", None),
    ):
        refused = peer.json(method, path, body, token=runner)
        assert refused.status in (401, 403), path
    assert peer.json("GET", "/apis", token=runner).status == 200
    told = peer.json("GET", f"{maps}/other", token=runner).body
    assert told["message"] == (
        'configmaps "other" is forbidden: User "system:serviceaccount:default:runner" cannot get resource "configmaps" '
        'in API group "" in the namespace "default"'
    )


def test_a_removed_binding_counts_at_once(peer: Any, runner: str) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    assert peer.json("GET", maps, token=runner).status == 200
    peer.json("DELETE", f"/apis/{RBAC}/v1/namespaces/default/rolebindings/b")
    assert peer.json("GET", maps, token=runner).status == 403


def review(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


def test_reviews_tell_the_truth(peer: Any, runner: str) -> None:
    def allowed(verb: str, *, token: str, plural: str = "selfsubjectaccessreviews", **more: Any) -> bool:
        attributes = {"verb": verb, "resource": "configmaps", "namespace": "default", "name": "mine"}
        kind = "SubjectAccessReview" if more else "SelfSubjectAccessReview"
        path = f"/apis/authorization.k8s.io/v1/{plural}"
        answered = peer.json("POST", path, review(kind, resourceAttributes=attributes, **more), token=token)
        assert answered.status == 201, answered.body
        return bool(answered.body["status"]["allowed"])

    assert allowed("get", token=runner)
    assert not allowed("delete", token=runner)
    assert allowed("delete", token="")
    who = "system:serviceaccount:default:runner"
    assert allowed("get", token="", plural="subjectaccessreviews", user=who)
    assert not allowed("delete", token="", plural="subjectaccessreviews", user=who)
    myself = peer.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=runner)
    assert myself.body["status"]["userInfo"]["username"] == who
    rules = peer.json(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        review("SelfSubjectRulesReview", namespace="default"),
        token=runner,
    ).body["status"]["resourceRules"]
    assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]} in rules
    unnamed = peer.json("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review("SubjectAccessReview"))
    assert unnamed.status == 422


def test_the_administrator_may_ask_as_somebody(peer: Any, runner: str) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    as_runner = {"Impersonate-User": "system:serviceaccount:default:runner"}
    assert peer.json("GET", f"{maps}/mine", **as_runner).status == 200
    assert peer.json("GET", f"{maps}/other", **as_runner).status == 403
    refused = peer.json("GET", f"{maps}/mine", token=runner, **{"Impersonate-User": "trainwright-admin"})
    assert refused.status == 403
    assert 'cannot impersonate resource "users"' in refused.body["message"]
    as_masters = {"Impersonate-User": "someone", "Impersonate-Group": "system:masters"}
    assert peer.json("GET", f"{maps}/mine", token=runner, **as_masters).status == 403
    assert peer.json("GET", f"{maps}/other", **as_masters).status == 200


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "name"),
    [
        ("GET", "pods", b"", "list", ""),
        ("HEAD", "pods", b"", "list", ""),
        ("GET", "pods", b"watch=1&fieldSelector=metadata.name%3Dp", "watch", "p"),
        ("GET", "pods/p", b"watch=1", "get", "p"),
        ("HEAD", "pods/p", b"", "get", "p"),
        ("DELETE", "pods", b"fieldSelector=metadata.name%3D%3Dp", "deletecollection", "p"),
        ("POST", "pods", b"fieldSelector=metadata.name%3Dp", "create", ""),
        ("PATCH", "pods/q", b"fieldSelector=metadata.name%3Dp", "patch", "q"),
        ("GET", "pods/p/exec", b"", "create", "p"),
    ],
)
def test_access_of_reads_verb_and_name_from_the_request(method: str, path: str, query: bytes, verb: str, name: str) -> None:
    request = Request({"type": "http", "method": method, "query_string": query, "headers": []})
    full = f"/api/v1/namespaces/default/{path}"
    asked = access_of(request, full, full.split("/")[1:])
    assert (asked.verb, asked.name, asked.namespace) == (verb, name, "default")


@pytest.fixture
def named(peer: Any) -> str:
    """The token of an account with rights on the ConfigMap `mine`, and to change, not to create, other objects."""
    peer.json("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "named"}})
    rules = [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["mine"],
            "verbs": ["create", "get", "list", "watch", "deletecollection", "update", "patch"],
        },
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["services", "events"], "verbs": ["update"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]},
    ]
    prefix = f"/apis/{RBAC}/v1/namespaces/default"
    peer.json("POST", f"{prefix}/roles", {**role(ROLE, {}), "rules": rules})
    peer.json("POST", f"{prefix}/rolebindings", binding(ROLE_BINDING, ROLE, {"kind": "ServiceAccount", "name": "named"}))
    for name in ("mine", "other"):
        peer.json("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": name}})
    issued = peer.json("POST", "/api/v1/namespaces/default/serviceaccounts/named/token", {"spec": {}})
    return str(issued.body["status"]["token"])


@pytest.mark.medium
def test_a_field_selector_names_an_object_only_where_it_selects(peer: Any, named: str) -> None:
    maps, mine = "/api/v1/namespaces/default/configmaps", "?fieldSelector=metadata.name%3Dmine"
    listed = peer.json("GET", maps + mine, token=named)
    assert [item["metadata"]["name"] for item in listed.body["items"]] == ["mine"]
    assert peer.json("GET", f"{maps}?fieldSelector=metadata.name%3D%3Dmine", token=named).status == 200
    for selector in ("metadata.name!%3Dmine", "metadata.name%3Dother", "metadata.namespace%3Dmine", ""):
        assert peer.json("GET", f"{maps}?fieldSelector={selector}", token=named).status == 403, selector
        assert peer.json("DELETE", f"{maps}?fieldSelector={selector}", token=named).status == 403, selector
    for query in ("", mine):
        assert peer.json("POST", maps + query, {"metadata": {"name": "evil"}}, token=named).status == 403, query
    assert peer.json("DELETE", f"{maps}/other{mine}", token=named).status == 403
    assert peer.json("DELETE", maps + mine, token=named).status == 200
    assert peer.json("GET", f"{maps}/other").status == 200


@pytest.mark.medium
def test_an_update_or_apply_that_creates_needs_the_verb_create(peer: Any, named: str) -> None:
    core = "/api/v1/namespaces/default"
    event = {"involvedObject": {"namespace": "default"}, "reason": "r", "type": "Normal"}
    new_event = {
        "regarding": {"namespace": "default"},
        "reason": "r",
        "type": "Normal",
        "action": "a",
        "reportingController": "a/b",
    }
    new_event |= {"reportingInstance": "i", "eventTime": "2026-01-01T00:00:00.000000Z"}
    for path, body in (
        (f"{core}/services/evil", {"spec": {"ports": [{"port": 80}]}}),
        (f"{core}/events/evil", event),
        ("/apis/events.k8s.io/v1/namespaces/default/events/new", new_event),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases/evil", {"spec": {}}),
    ):
        obj = {**body, "metadata": {"name": path.rpartition("/")[2], "namespace": "default"}}
        refused = peer.json("PUT", path, obj, token=named)
        assert refused.status == 403, (path, refused.body)
        assert "cannot create resource" in refused.body["message"]
        assert peer.json("GET", path).status == 404
        assert peer.json("PUT", path, obj).status == 201, path
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evil"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    refused = peer.json("PATCH", f"{core}/pods/evil?fieldManager=x", pod, token=named, **headers)
    assert (refused.status, refused.body["message"]) == (
        403,
        'pods "evil" is forbidden: User "system:serviceaccount:default:named" cannot create resource "pods" in API group "" '
        'in the namespace "default"',
    )
    assert peer.json("PATCH", f"{core}/pods/evil?fieldManager=x", pod, **headers).status == 201
