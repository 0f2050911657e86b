"""Roles, bindings, Deployments, network policies and disruption budgets: read strictly, defaulted and refused as a cluster does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid, Undecodable

DEPLOY = Path(__file__).parents[2] / "deploy"
RBAC = "rbac.authorization.k8s.io"


def obj(kind: str, **fields: Any) -> dict[str, Any]:
    versions = {"Deployment": "apps/v1", "NetworkPolicy": "networking.k8s.io/v1", "PodDisruptionBudget": "policy/v1"}
    return {
        "apiVersion": versions.get(kind, f"{RBAC}/v1"),
        "kind": kind,
        "metadata": {"name": "a", "namespace": "n"},
        **fields,
    }


def deployment(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return obj("Deployment", spec={"selector": {"matchLabels": {"app": "x"}}, "template": template, **spec})


REFERENCE = {"kind": "Role", "name": "r"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (obj("Role", rules=[{"apiGroups": [""], "resources": ["pods"]}]), "rules[0].verbs: Required value"),
        (obj("Role", rules=[{"verbs": ["get"], "resources": ["pods"]}]), "must supply at least one api group"),
        (obj("Role", rules=[{"verbs": ["get"], "apiGroups": [""]}]), "must supply at least one resource"),
        (
            obj("Role", rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"]}]),
            "namespaced rules cannot apply to non-resource URLs",
        ),
        (
            obj("ClusterRole", rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}]),
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (obj("RoleBinding", roleRef={"kind": "Rule", "name": "r"}), "roleRef.kind: Unsupported value"),
        (obj("ClusterRoleBinding", roleRef=REFERENCE), "roleRef.kind: Unsupported value"),
        (obj("RoleBinding", roleRef=REFERENCE, subjects=[{"kind": "ServiceAccount"}]), "subjects[0].name: Required value"),
        (obj("RoleBinding", roleRef=REFERENCE, subjects=[{"kind": "Robot", "name": "x"}]), "subjects[0].kind: Unsupported value"),
        (obj("Role", metadata={"name": "a/b", "namespace": "n"}), "may not contain '/'"),
        (deployment(selector={"matchLabels": {"app": "y"}}), "`selector` does not match template `labels`"),
        (deployment(selector={}), "empty selector is invalid for deployment"),
        (deployment(replicas=-1), "must be greater than or equal to 0"),
        (deployment(strategy={"type": "Fast"}), "spec.strategy.type: Unsupported value"),
        (obj("PodDisruptionBudget", spec={"minAvailable": 1, "maxUnavailable": 1}), "cannot be both set"),
        (obj("NetworkPolicy", spec={"policyTypes": ["Inside"]}), "spec.policyTypes[0]: Unsupported value"),
    ],
)
def test_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as refused:
        admit(given)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        obj("Role", rules=[{"verbs": ["get"], "resource": ["pods"]}]),
        obj("RoleBinding", roleRef=REFERENCE | {"namespace": "n"}),
        deployment(replica=1),
        obj("NetworkPolicy", spec={"ingress": [{"form": []}]}),
        obj("PodDisruptionBudget", spec={"maxUnavailabel": 1}),
    ],
)
def test_unknown_fields_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Undecodable, match="unknown field"):
        admit(given)


def test_defaults() -> None:
    spec = admit(deployment()).object["spec"]
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    users = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]
    bound = admit(obj("RoleBinding", roleRef=REFERENCE, subjects=users)).object
    assert bound["roleRef"]["apiGroup"] == bound["subjects"][0]["apiGroup"] == RBAC
    assert "apiGroup" not in bound["subjects"][1]
    assert admit(obj("NetworkPolicy", spec={"egress": [{}]})).object["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_a_binding_keeps_its_role() -> None:
    old = admit(obj("RoleBinding", roleRef=REFERENCE)).object
    with pytest.raises(Invalid, match="cannot change roleRef"):
        admit(obj("RoleBinding", roleRef=REFERENCE | {"name": "other"}), old)


@pytest.mark.parametrize(
    "file",
    [file for file in sorted(DEPLOY.rglob("*.yaml")) if not {"chart", "kind"} & set(file.parts)],
    ids=lambda file: str(file.relative_to(DEPLOY)),
)
def test_every_manifest_in_deploy_is_admitted(file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text("utf-8")):
        if document["kind"] != "Kustomization":
            admit(document)
