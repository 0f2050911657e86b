"""What a pod finds in /etc/hostname and /etc/resolv.conf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwright.controlplane.node.network.host_names import resolver_file
from trainwright.controlplane.node.network.pod_network import network_mounts

MACHINE = "# made by hand\nnameserver 10.0.0.1\nsearch a.example\noptions timeout:1 ndots:1\n"
CONFIG = {
    "nameservers": ["1.2.3.4", "10.0.0.1"],
    "searches": ["b.example", "a.example"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"dnsPolicy": "ClusterFirst"}, None),
        ({"dnsPolicy": "Default", "dnsConfig": {}}, None),
        ({"dnsPolicy": "None"}, ""),
        (
            {"dnsPolicy": "None", "dnsConfig": CONFIG},
            "search b.example a.example\nnameserver 1.2.3.4\nnameserver 10.0.0.1\noptions ndots:2 edns0\n",
        ),
        (
            {"dnsPolicy": "ClusterFirst", "dnsConfig": CONFIG},
            "search a.example b.example\nnameserver 10.0.0.1\nnameserver 1.2.3.4\noptions timeout:1 ndots:2 edns0\n",
        ),
    ],
)
def test_resolver_file(spec: dict[str, Any], text: str | None) -> None:
    assert resolver_file(spec, MACHINE) == text


def test_a_pod_has_its_host_name_in_a_file(tmp_path: Path) -> None:
    spec = {"hostname": "web", "subdomain": "job", "setHostnameAsFQDN": True, "dnsPolicy": "None"}
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": spec}
    mounts = {mount.container_path: mount.host_path for mount in network_mounts(pod, {}, tmp_path)}
    assert mounts == {
        "/etc/hosts": tmp_path / "hosts",
        "/etc/hostname": tmp_path / "hostname",
        "/etc/resolv.conf": tmp_path / "resolv.conf",
    }
    assert (tmp_path / "hostname").read_text("utf-8") == "web.job.n.svc.cluster.local\n"
    assert (tmp_path / "hostname").stat().st_mode & 0o777 == 0o644


def test_a_container_may_mount_its_own_files_there(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {}}
    container = {"volumeMounts": [{"name": "v", "mountPath": "/etc/hosts/"}]}
    assert [mount.container_path for mount in network_mounts(pod, container, tmp_path)] == ["/etc/hostname"]
