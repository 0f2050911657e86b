"""Nobody gives away rights by a role or binding that they do not have, unless they may `escalate` or `bind`."""

from __future__ import annotations

from typing import Any

import pytest
from senders import Rule, Sender

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING, Kind
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.media import APPLY, JSON_PATCH, MERGE, STRATEGIC
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

GROUP = "rbac.authorization.k8s.io"
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
ALL: Rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
URLS: Rule = {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}


def write_role(server: ResourceServer, sender: Sender, *rules: Rule, kind: Kind = ROLE, **more: Any) -> None:
    obj = {"metadata": {"name": "r"}, "rules": list(rules), **more}
    server.create(kind, "default" if kind.namespaced else "", obj, WriteOptions(sender=sender))


def reference(kind: Kind = ROLE, name: str = "r") -> dict[str, str]:
    return {"apiGroup": GROUP, "kind": kind.kind, "name": name}


def bind(server: ResourceServer, sender: Sender, to: Kind = ROLE, name: str = "r", kind: Kind = ROLE_BINDING) -> None:
    obj = {
        "metadata": {"name": "b"},
        "roleRef": reference(to, name),
        "subjects": [{"kind": "User", "name": "x", "apiGroup": GROUP}],
    }
    server.create(kind, "default" if kind.namespaced else "", obj, WriteOptions(sender=sender))


@pytest.mark.parametrize(
    ("held", "given", "missing"),
    [
        ([READ], [READ], ""),
        ([ALL], [READ, {**READ, "resourceNames": ["p"]}], ""),
        ([READ], [{**READ, "resourceNames": ["p"]}], ""),
        ([{**READ, "resourceNames": ["p", "q"]}], [{**READ, "resourceNames": ["p"]}], ""),
        ([{**READ, "verbs": ["get"]}, {**READ, "verbs": ["list"]}], [READ], ""),
        ([{**READ, "resources": ["*/log"]}], [{**READ, "resources": ["pods/log"]}], ""),
        ([], [READ], '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'),
        (
            [{**READ, "resources": ["pods/*"]}],
            [{**READ, "resources": ["pods/log"]}],
            '{APIGroups:[""], Resources:["pods/log"], Verbs:["get" "list"]}',
        ),
        ([{**READ, "resourceNames": ["p"]}], [READ], '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'),
        (
            [READ],
            [{**READ, "verbs": ["get", "delete"], "resourceNames": ["p"]}],
            '{APIGroups:[""], Resources:["pods"], ResourceNames:["p"], Verbs:["delete"]}',
        ),
        ([READ], [ALL], '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}'),
    ],
)
def test_a_role_gives_what_its_author_has(server: ResourceServer, held: list[Rule], given: list[Rule], missing: str) -> None:
    if not missing:
        write_role(server, Sender(held), *given)
        return
    with pytest.raises(Forbidden) as refused:
        write_role(server, Sender(held), *given)
    assert refused.value.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "jane" (groups=["a" "b"]) is attempting to grant RBAC permissions '
        f"not currently held:\n{missing}"
    )


@pytest.mark.parametrize(
    ("url", "allowed"),
    [("/metrics", True), ("/logs/a", True), ("/logs/*", True), ("/logs", False), ("*", False)],
)
def test_urls_of_a_cluster_role_are_covered_by_prefix(server: ResourceServer, url: str, allowed: bool) -> None:
    given = {"nonResourceURLs": [url], "verbs": ["get"]}
    if allowed:
        write_role(server, Sender([URLS]), given, kind=CLUSTER_ROLE)
    else:
        with pytest.raises(Forbidden, match="NonResourceURLs"):
            write_role(server, Sender([URLS]), given, kind=CLUSTER_ROLE)


@pytest.mark.parametrize("kind", [ROLE, CLUSTER_ROLE])
def test_who_may_escalate_gives_anything(server: ResourceServer, kind: Kind) -> None:
    write_role(server, Sender(verbs=(("escalate", kind.plural),)), ALL, kind=kind)


def test_changes_of_a_role_are_checked_however_they_are_written(server: ResourceServer) -> None:
    write_role(server, Sender(is_administrator=True), ALL)
    jane = WriteOptions(sender=Sender([READ]))
    server.patch(ROLE, "default", "r", {"metadata": {"labels": {"a": "b"}}}, MERGE, jane)  # leaves the rules
    more = {"rules": [ALL, READ]}
    for patch, media in (
        (more, MERGE),
        (more, STRATEGIC),
        ([{"op": "add", "path": "/rules/-", "value": ALL}], JSON_PATCH),
        ({"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [ALL, READ]}, APPLY),
    ):
        with pytest.raises(Forbidden, match="not currently held"):
            server.patch(ROLE, "default", "r", patch, media, WriteOptions(sender=Sender([READ]), force=media == APPLY))
    wanted = {"metadata": {"name": "r"}, "rules": [ALL, READ]}
    with pytest.raises(Forbidden, match="not currently held"):
        server.update(ROLE, "default", "r", wanted, jane)
    with pytest.raises(Forbidden, match="not currently held"):
        server.update(
            ROLE,
            "default",
            "r",
            {"metadata": {"name": "r"}, "rules": [ALL, READ]},
            WriteOptions(sender=Sender([READ]), dry_run=True),
        )
    server.update(ROLE, "default", "r", {"metadata": {"name": "r"}, "rules": [READ]}, jane)


def test_an_aggregation_rule_needs_all_rights(server: ResourceServer) -> None:
    rule = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    everything = [ALL, {"nonResourceURLs": ["*"], "verbs": ["*"]}]
    with pytest.raises(Forbidden, match="must have cluster-admin privileges to use an aggregationRule"):
        write_role(server, Sender([ALL]), kind=CLUSTER_ROLE, aggregationRule=rule)
    write_role(server, Sender(everything), kind=CLUSTER_ROLE, aggregationRule=rule)


@pytest.mark.parametrize(
    ("kind", "to"), [(ROLE_BINDING, ROLE), (ROLE_BINDING, CLUSTER_ROLE), (CLUSTER_ROLE_BINDING, CLUSTER_ROLE)]
)
def test_a_binding_gives_what_its_author_has_or_may_bind(server: ResourceServer, kind: Kind, to: Kind) -> None:
    write_role(server, Sender(is_administrator=True), READ, kind=to)
    with pytest.raises(Forbidden, match=r'"b" is forbidden: user "jane" .* not currently held:\n{APIGroups:\[""\]'):
        bind(server, Sender(), to, kind=kind)
    with pytest.raises(Forbidden):
        bind(server, Sender(verbs=(("escalate", to.plural),)), to, kind=kind)
    bind(server, Sender(verbs=(("bind", to.plural),)), to, kind=kind)
    server.delete(kind, "default" if kind.namespaced else "", "b")
    bind(server, Sender([READ]), to, kind=kind)


def test_a_role_that_does_not_exist_is_bound_by_those_who_may_bind_it(server: ResourceServer) -> None:
    with pytest.raises(NotFound, match=r'roles\.rbac\.authorization\.k8s\.io "none" not found'):
        bind(server, Sender([ALL]), name="none")
    bind(server, Sender(verbs=(("bind", "roles"),)), name="none")
