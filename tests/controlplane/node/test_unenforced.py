"""Security settings that the node ignores are named, and those that it meets anyway are not."""

import os
from typing import Any

import pytest

from trainwright.controlplane.node.unenforced import unenforced_message


def pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "node", **(container or {})}], **spec}}


@pytest.mark.parametrize(
    "harmless",
    [
        pod(),
        pod({"securityContext": {"allowPrivilegeEscalation": True, "privileged": False, "readOnlyRootFilesystem": False}}),
        pod(securityContext={"runAsUser": os.geteuid(), "runAsGroup": os.getegid(), "runAsNonRoot": False}),
        pod({"volumeMounts": [{"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}]}),
        pod({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
    ],
)
def test_a_pod_that_asks_for_nothing_gets_no_event(harmless: dict[str, Any]) -> None:
    assert unenforced_message(harmless) == ""


def test_every_ignored_setting_is_named_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked = pod(
        {
            "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
            "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        },
        securityContext={"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 1000},
        initContainers=[{"name": "prepare", "securityContext": {"readOnlyRootFilesystem": True}}],
    )
    message = unenforced_message(asked)
    assert message.split(": ")[1].split(", ") == [
        "spec.securityContext.fsGroup",
        "spec.securityContext.runAsNonRoot",
        "spec.securityContext.runAsUser",
        "spec.initContainers{prepare}.securityContext.readOnlyRootFilesystem",
        "spec.containers{node}.securityContext.allowPrivilegeEscalation",
        "spec.containers{node}.securityContext.capabilities",
        "spec.containers{node}.volumeMounts{data}.readOnly",
    ]


def test_another_user_than_root_meets_run_as_non_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unenforced_message(pod(securityContext={"runAsNonRoot": True, "runAsUser": 1000})) == ""
