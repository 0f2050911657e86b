"""In the place of Trainer's manager: its webhooks refuse every TrainJob while nobody answers them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.kinds import Kind
from trainwright.trainer.standalone.upstream_manager import check_webhooks

NAMES = {
    "mutatingwebhookconfigurations": "defaulter.trainer.kubeflow.org",
    "validatingwebhookconfigurations": "validator.trainer.kubeflow.org",
}


def webhook(**changes: Any) -> dict[str, Any]:
    rule = {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["v1alpha1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["trainjobs"],
    }
    service = {"name": "kubeflow-trainer-controller-manager", "namespace": "kubeflow-system", "path": "/validate"}
    return {"name": "validator.trainjob.trainer.kubeflow.org", "rules": [rule], "clientConfig": {"service": service}} | changes


@dataclass
class Webhooks:
    """A cluster with Trainer's webhooks, and with the endpoints of their Service."""

    webhooks: list[dict[str, Any]] = field(default_factory=lambda: [webhook()])
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    may_delete: bool = True
    may_read: bool = True
    deleted: list[tuple[str, str]] = field(default_factory=list)

    def get(self, kind: Kind, name: str, _namespace: str | None = None) -> dict[str, Any]:
        if not self.may_read:
            raise Forbidden("get is not allowed")
        if not self.webhooks or name != NAMES[kind.plural]:
            raise NotFound(name)
        return {"metadata": {"name": name, "uid": f"uid-of-{name}"}, "webhooks": self.webhooks}

    def list(self, kind: Kind, namespace: str, *, label_selector: str) -> Any:
        assert (kind.plural, namespace) == ("endpointslices", "kubeflow-system")
        assert label_selector == "kubernetes.io/service-name=kubeflow-trainer-controller-manager"
        return type("Listing", (), {"items": [{"endpoints": self.endpoints}, {"endpoints": None}]})

    def delete(self, _kind: Kind, name: str, *, uid: str) -> None:
        if not self.may_delete:
            raise Forbidden("delete is not allowed")
        self.deleted.append((name, uid))


REMOVED = [(name, f"uid-of-{name}") for name in NAMES.values()]


@pytest.mark.parametrize(
    ("cluster", "are_dead"),
    [
        (Webhooks(), True),
        (Webhooks(endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]), True),
        (Webhooks(endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]), False),
        (Webhooks(endpoints=[{"addresses": ["10.0.0.1"]}]), False),  # nobody knows: it counts as ready
        (Webhooks(webhooks=[]), False),
        (Webhooks(webhooks=[webhook(failurePolicy="Ignore")]), False),
        (Webhooks(webhooks=[webhook(clientConfig={"url": "https://elsewhere"})]), False),
        (Webhooks(webhooks=[webhook(rules=[{**webhook()["rules"][0], "resources": ["trainingruntimes"]}])]), False),
        (Webhooks(webhooks=[webhook(rules=[{**webhook()["rules"][0], "operations": ["UPDATE"]}])]), False),
        (Webhooks(webhooks=[webhook(rules=[{"apiGroups": ["*"], "operations": ["*"], "resources": ["*/*"]}])]), True),
        (Webhooks(may_read=False), False),
    ],
)
def test_webhooks_that_nobody_answers_are_told_and_removed_on_request(
    cluster: Webhooks, are_dead: bool, caplog: pytest.LogCaptureFixture
) -> None:
    check_webhooks(cluster, removes=False)  # type: ignore[arg-type]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert cluster.deleted == []
    assert ["kubectl delete validatingwebhookconfiguration validator.trainer.kubeflow.org" in line for line in said] == (
        [False, True] if are_dead else []
    )
    check_webhooks(cluster, removes=True)  # type: ignore[arg-type]
    assert cluster.deleted == (REMOVED if are_dead else [])


def test_a_missing_right_to_remove_them_is_told_with_the_file_that_grants_it(caplog: pytest.LogCaptureFixture) -> None:
    check_webhooks(Webhooks(may_delete=False), removes=True)  # type: ignore[arg-type]
    assert "deploy/controller/take-over-webhooks.yaml" in caplog.text
