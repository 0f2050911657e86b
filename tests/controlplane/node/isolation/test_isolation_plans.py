"""The plan of a container's isolation, the settings that it cannot carry out, and the folders that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import pod

from trainwright.controlplane.node.isolation import visible
from trainwright.controlplane.node.isolation.credentials import DEFAULT_CAPABILITIES
from trainwright.controlplane.node.isolation.plan import (
    ContainerMount,
    Identity,
    isolation_plan,
    kept_capabilities,
    refused_capabilities,
)
from trainwright.controlplane.node.isolation.support import Support, isolation_support, not_honoured

ON, OFF = Support(True), Support(False, "off")


def plan(container: dict[str, Any] | None = None, mounts: tuple[ContainerMount, ...] = (), **more: Any) -> dict[str, Any]:
    given = {"hostname": "web-0", "identity": Identity(0, 0), "layer": Path("/pods/layer"), "is_root": False, **more}
    return isolation_plan({}, container or {}, mounts, **given)


def test_outer_mounts_come_before_inner_ones() -> None:
    mounts = (
        ContainerMount("/a/b/", Path("/x")),
        ContainerMount("//a/./b/c", Path("/y"), read_only=True),
        ContainerMount("/a", None, tmpfs_bytes=7),
        ContainerMount("relative/../b", Path("/z")),
    )
    assert [
        (mount["target"], mount["source"], mount["read_only"], mount["tmpfs_bytes"]) for mount in plan(mounts=mounts)["mounts"]
    ] == [
        ("/a", None, False, 7),
        ("/b", "/z", False, None),
        ("/a/b", "/x", False, None),
        ("/a/b/c", "/y", True, None),
    ]


def test_a_hidden_folder_is_also_hidden_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert plan(hidden=[tmp_path / "link", Path("/")])["hidden"] == [str(tmp_path / "link"), str(tmp_path / "real")]


@pytest.mark.parametrize(
    ("setting", "kept", "refused"),
    [
        ({}, set(DEFAULT_CAPABILITIES), []),
        ({"drop": ["ALL"]}, set(), []),
        ({"drop": ["all"], "add": ["CAP_CHOWN", "net_raw"]}, {0, 13}, []),
        ({"drop": ["NET_RAW", "SYS_ADMIN"]}, set(DEFAULT_CAPABILITIES) - {13}, []),
        ({"add": ["SYS_PTRACE"]}, {*DEFAULT_CAPABILITIES, 19}, []),
        ({"add": ["SYS_ADMIN", "NET_ADMIN", "CHOWN"]}, set(DEFAULT_CAPABILITIES), ["SYS_ADMIN", "NET_ADMIN"]),
        ({"add": ["ALL"]}, {*DEFAULT_CAPABILITIES, 15, 19}, ["ALL"]),
    ],
)
def test_capabilities_that_change_mounts_are_never_kept(setting: dict[str, Any], kept: set[int], refused: list[str]) -> None:
    assert (kept_capabilities(setting), refused_capabilities(setting)) == (kept, refused)


def node_pod(container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return pod(container={"name": "node", **(container or {})}, **spec)


READ_ONLY = {"volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}
TOKEN = {"volumeMounts": [{"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}]}
LOCKED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("given", "is_root", "expected"),
    [
        (node_pod(), False, []),
        (node_pod({**READ_ONLY, "securityContext": LOCKED}), False, []),
        (node_pod(securityContext={"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}), False, []),
        (node_pod(securityContext={"fsGroup": 7, "supplementalGroups": [8]}), True, []),
        (
            node_pod(securityContext={"fsGroup": 7, "supplementalGroups": [8]}),
            False,
            ["spec.securityContext.fsGroup", "spec.securityContext.supplementalGroups"],
        ),
        (
            node_pod(hostPID=True, hostIPC=True, hostNetwork=True, shareProcessNamespace=True),
            True,
            ["spec.hostPID", "spec.hostIPC"],
        ),
        (node_pod(shareProcessNamespace=True, initContainers=[{"name": "a"}]), True, ["spec.shareProcessNamespace"]),
        (node_pod({"securityContext": {"privileged": True}}), True, ["spec.containers{node}.securityContext.privileged"]),
        (
            node_pod({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
            True,
            ["spec.containers{node}.securityContext.capabilities.add"],
        ),
        (
            node_pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"level": "s0"}}),
            True,
            ["spec.securityContext.seLinuxOptions", "spec.securityContext.seccompProfile"],
        ),
        (node_pod(securityContext={"seccompProfile": {"type": "Unconfined"}, "sysctls": []}), True, []),
        (
            node_pod({"securityContext": {"runAsUser": 2}}, initContainers=[{"name": "a", "securityContext": {"runAsUser": 1}}]),
            False,
            ["spec.containers{node}.securityContext.runAsUser"],
        ),
        (
            node_pod({"securityContext": {"runAsUser": 2}}, initContainers=[{"name": "a", "securityContext": {"runAsUser": 1}}]),
            True,
            [],
        ),
        (
            node_pod({"volumeMounts": [{"name": "v", "mountPath": "/v", "mountPropagation": "Bidirectional"}]}),
            True,
            ["spec.containers{node}.volumeMounts{v}.mountPropagation"],
        ),
        (node_pod({"restartPolicyRules": [{"action": "Restart"}]}), True, []),
        (
            node_pod({"restartPolicyRules": [{"action": "RestartAllContainers"}]}),
            True,
            ["spec.containers{node}.restartPolicyRules"],
        ),
    ],
)
def test_settings_that_isolation_cannot_honour_are_named(given: dict[str, Any], is_root: bool, expected: list[str]) -> None:
    assert not_honoured(given, ON, is_root=is_root) == expected


def test_without_isolation_nearly_nothing_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked = node_pod(
        {**READ_ONLY, "securityContext": LOCKED},
        securityContext={"runAsNonRoot": True, "runAsUser": 65532},
        initContainers=[{"name": "prepare", **TOKEN}],
    )
    assert not_honoured(asked, OFF, is_root=True) == [
        "spec.securityContext.runAsNonRoot",
        "spec.securityContext.runAsUser",
        "spec.containers{node}.securityContext.allowPrivilegeEscalation",
        "spec.containers{node}.securityContext.capabilities",
        "spec.containers{node}.securityContext.readOnlyRootFilesystem",
        "spec.containers{node}.volumeMounts{data}.readOnly",
    ]
    assert not_honoured(node_pod(), OFF, is_root=True) == []


def test_where_memory_cannot_be_measured_its_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    containers = [{"name": "c", "resources": {"limits": {"memory": "1Gi", "cpu": "1"}}}]
    pod = {"spec": {"containers": containers, "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}]}}
    monkeypatch.setattr(sys, "platform", "linux")
    assert not_honoured(pod, OFF, is_root=True) == []
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not_honoured(pod, OFF, is_root=True) == ["spec.containers{c}.resources.limits.memory"]


def test_isolation_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_ISOLATION", "off")
    assert isolation_support(tmp_path) == Support(
        False, "isolation is turned off by the environment variable TRAINWRIGHT_ISOLATION"
    )


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ({"code": 0}, ""),
        ({"code": 2}, "move the cluster's home to a local disk"),
        (
            {"code": 128, "reason": "StartError", "message": "isolation: mount /proc: Operation not permitted"},
            "systempaths=unconfined",
        ),
        ({"code": 128, "reason": "StartError", "message": "isolation: create namespaces: Operation not permitted"}, "seccomp"),
        (None, "without a result"),
    ],
)
def test_the_reason_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: dict[str, object] | None, expected: str
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    found = isolation_support(tmp_path, run_probe=lambda _: ended, sysctls=())
    assert found.available == (not expected)
    assert expected in found.reason
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
def test_the_folders_of_another_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    project = tmp_path / "a project"
    project.mkdir()
    packages = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    (packages / "thing-1.0.dist-info").mkdir()
    (packages / "thing-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n", "utf-8")
    (packages / "thing-1.0.dist-info" / "direct_url.json").write_text(
        f'{{"url": "{project.as_uri()}", "dir_info": {{"editable": true}}}}', "utf-8"
    )
    found = visible.python_folders_of(tmp_path / "env" / "bin" / "python")
    assert {tmp_path / "env", project, Path(sys.base_prefix)} <= set(found)
    assert Path(visible.__file__).parent not in found
