"""Access reviews and actions against a real API server: for its administrator, and for an account that may only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import trainjob
from support.cluster_under_test import embedded

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import SERVICE_ACCOUNT, TRAINJOB
from trainwright.api.objects import uid_of
from trainwright.cluster.connect import connect
from trainwright.cluster.kubernetes_cluster import KubernetesCluster
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui import actions
from trainwright.ui.call import Call, Page
from trainwright.ui.sessions import Session

pytestmark = pytest.mark.medium
_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[KubernetesCluster]:
    with embedded(tmp_path, node=False) as kubeconfig:
        yield connect(kubeconfig)


@pytest.fixture
def reader(admin: KubernetesCluster) -> KubernetesCluster:
    """The cluster with the token of an account that may read TrainJobs."""
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "default"}})
    rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["get", "list"]}]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": "reader", "namespace": "default"}, "rules": rules}
    binding = {
        **role,
        "kind": "RoleBinding",
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    del binding["rules"]
    for body in (role, binding):
        admin.request("post", f"/apis/{_RBAC}/v1/namespaces/default/{body['kind'].lower()}s", body)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"{SERVICE_ACCOUNT.path('default', 'reader')}/token"
    return admin.with_token(admin.request("post", path, asked)["status"]["token"])


def call(cluster: KubernetesCluster, job: dict[str, Any], query: Any = None) -> Call:
    session = Session(JobsClient.of(cluster), "", "key", 0.0)
    return Call(session, Page(), query=query or {}, body={"namespace": "default", "name": "demo", "uid": uid_of(job)})


def test_offers_match_what_the_server_allows(admin: KubernetesCluster, reader: KubernetesCluster) -> None:
    job = admin.create(trainjob("demo", suspend=True))
    query = {"namespace": "default", "name": "demo"}
    of_admin = actions.show_access(call(admin, job, query))["actions"]
    assert {name for name, each in of_admin.items() if each["allowed"]} == {"resume", "cancel", "delete"}
    of_reader = actions.show_access(call(reader, job, query))["actions"]
    assert of_reader["resume"]["reason"] == "you may not patch trainjobs.trainer.kubeflow.org in the namespace default"
    assert of_reader["delete"]["reason"] == "you may not delete trainjobs.trainer.kubeflow.org in the namespace default"
    for act in (actions.resume, actions.cancel, actions.delete):
        with pytest.raises(Forbidden):
            act(call(reader, job))
    assert actions.resume(call(admin, job))["outcome"] == "it is resumed"
    assert actions.suspend(call(admin, job))["outcome"].startswith("it is suspended")
    assert admin.get(TRAINJOB, "demo", "default")["spec"]["suspend"] is True
