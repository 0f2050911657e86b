"""What a connection says about a cluster, and what it is refused for: nothing leads to another cluster than was meant."""

from __future__ import annotations

from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright.cluster import NoCluster, connect

connections = OnFirstUse("trainwright.operators.values.connections")


@pytest.mark.parametrize(
    ("conn_type", "extra", "expected"),
    [
        ("trainwright", {}, {}),
        (
            "trainwright",
            {"kubeconfig": "/k ", "context": "c", "namespace": "n"},
            {"kubeconfig": "/k", "context": "c", "namespace": "n"},
        ),
        ("trainwright", {"in_cluster": True, "allowed_places": {"s3": ["s3://a"]}}, {"in_cluster": True}),
        ("kubernetes", {"kube_config_path": "/k", "cluster_context": "c"}, {"kubeconfig": "/k", "context": "c"}),
        ("kubernetes", {"extra__kubernetes__in_cluster": "True"}, {"in_cluster": True}),
        ("kubernetes", {"in_cluster": False, "kube_config_path": "/k"}, {"kubeconfig": "/k"}),
        (
            "kubernetes",
            {"xcom_sidecar_container_image": "x", "disable_tcp_keepalive": True, "kube_config": ""},
            {},
        ),
        ("kubernetes", {"disable_verify_ssl": "false", "unknown": None}, {}),
    ],
)
def test_settings_of_both_types(conn_type: str, extra: dict[str, Any], expected: dict[str, Any]) -> None:
    assert connections.settings_of(conn_type, extra, "c") == connections.ClusterSettings(**expected)


@pytest.mark.parametrize(
    ("conn_type", "extra", "message"),
    [
        ("generic", {}, "connection 'c' has the type 'generic'; a cluster needs one of trainwright or kubernetes"),
        ("", {}, "has the type ''"),
        ("kubernetes", {"kube_config_pth": "/k"}, "the extra 'kube_config_pth' is unknown; did you mean kube_config_path?"),
        ("trainwright", {"kube_config_path": "/k"}, "the extra 'kube_config_path' is unknown"),
        ("kubernetes", {"extra__kubernetes__kube_config": "apiVersion: v1"}, "kube_config as text is not supported"),
        ("kubernetes", {"disable_verify_ssl": True}, "disable_verify_ssl is not supported"),
        (
            "kubernetes",
            {"in_cluster": True, "kube_config_path": "/k"},
            "in_cluster excludes kube_config_path and cluster_context",
        ),
    ],
)
def test_contradictory_connections_are_refused(conn_type: str, extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^connection 'c'") as refused:
        connections.settings_of(conn_type, extra, "c")
    assert message in str(refused.value)


@pytest.mark.medium
def test_in_cluster_never_takes_the_kubeconfig_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    with pytest.raises(NoCluster, match="this pod's service account cannot be used"):
        connect(in_cluster=True)
