"""Names and addresses of pods: host names, hosts files, addresses of their own, and the variables of Services."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories import pod
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.environment import service_variables
from trainwright.controlplane.node.network.host_names import host_name, hosts_file
from trainwright.controlplane.node.network.pod_network import PodAddresses

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


team_pod = partial(pod, namespace="team")


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "p"),
        ({"hostname": "h"}, "h"),
        ({"name": "a" * 63}, "a" * 63),
        ({"name": "a" * 64}, "a" * 63),
        ({"name": "a" * 61 + "-b.c"}, "a" * 61 + "-b"),
        ({"name": "a" * 61 + "-.b"}, "a" * 61),
        ({"hostname": "h", "subdomain": "s"}, "h"),
        ({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True}, "h.s.team.svc.cluster.local"),
        ({"hostname": "h", "setHostnameAsFQDN": True}, "h"),
        ({"hostname": "h", "hostnameOverride": "any.name"}, "any.name"),
    ],
)
def test_host_names(spec: dict[str, Any], name: str) -> None:
    assert host_name(team_pod(**spec)) == name


KUBELETS_PART = (
    "# Kubernetes-managed hosts file.\n"
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


def test_hosts_file_of_a_kubelet() -> None:
    assert hosts_file(team_pod(), "127.9.0.1") == KUBELETS_PART + "127.9.0.1\tp\n"
    aliases = [{"ip": "1.2.3.4", "hostnames": ["a", "b.c"]}, {"ip": "::5", "hostnames": ["d"]}]
    assert hosts_file(team_pod(hostAliases=aliases), "127.9.0.1") == (
        KUBELETS_PART + "127.9.0.1\tp\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::5\td\n"
    )
    assert hosts_file(team_pod(hostNetwork=True), "127.0.0.1", host_file="127.0.0.1 localhost\n") == (
        "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"
    )


def resolved(text: str) -> dict[str, set[str]]:
    """The addresses that a resolver finds for each name."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            found.setdefault(name, set()).add(address)
    return found


def test_a_pod_of_the_default_namespace_finds_the_api_server_by_its_short_name() -> None:
    other = team_pod()
    other["metadata"]["namespace"] = "default"
    assert resolved(hosts_file(other, "127.9.0.1", api_address="10.0.0.1"))["kubernetes"] == {"10.0.0.1"}


@pytest.mark.medium
@linux
def test_addresses_are_kept_and_differ(tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    addresses = PodAddresses(file, tmp_path)
    found = [addresses.address_for(str(number)) for number in range(600)]
    assert len(set(found)) == 600
    assert {address.split(".")[1] for address in found} == {found[0].split(".")[1]} != {"0"}
    assert not {"0", "255"} & {address.split(".")[3] for address in found}
    assert [PodAddresses(file, tmp_path).address_for(str(number)) for number in range(600)] == found
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with socket.create_server((found[0], 0)) as first, socket.create_server((found[1], first.getsockname()[1])):
        pass  # both listen on the same port


@linux
def test_released_addresses_are_used_last(tmp_path: Path) -> None:
    addresses = PodAddresses(tmp_path / "a", tmp_path)
    first, second = addresses.address_for("1"), addresses.address_for("2")
    addresses.release("1")
    addresses.release("1")
    again = PodAddresses(tmp_path / "a", tmp_path)
    assert again.address_for("3") not in (first, second)
    assert again.address_for("2") == second
    again.release_others({"3"})
    stored = json.loads((tmp_path / "a").read_text())
    assert set(stored["addresses"]) == {"3"}
    stored["next"] -= 3
    (tmp_path / "a").write_text(json.dumps(stored))
    assert PodAddresses(tmp_path / "a", tmp_path).address_for("4") == first


def test_other_systems_have_one_address(tmp_path: Path) -> None:
    addresses = PodAddresses(tmp_path / "a", tmp_path, "darwin")
    assert {addresses.address_for("1"), addresses.address_for("2")} == {"127.0.0.1"}
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"next": "x", "addresses": {}}', '{"next": 1, "addresses": []}'])
def test_a_damaged_file_is_reported(content: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(ValueError, match="is damaged"):
        PodAddresses(tmp_path / "a", tmp_path)


def service(name: str = "my-svc", namespace: str = "team", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"ports": [{"port": 80, "name": "web"}], **spec}}


def test_variables_of_a_service() -> None:
    ports = [{"port": 80, "name": "web-1"}, {"port": 53, "name": "dns", "protocol": "UDP"}]
    assert service_variables([service(clusterIP="10.0.0.7", ports=ports)], "team", "127.0.0.1") == {
        "MY_SVC_SERVICE_HOST": "10.0.0.7",
        "MY_SVC_SERVICE_PORT": "80",
        "MY_SVC_SERVICE_PORT_WEB_1": "80",
        "MY_SVC_SERVICE_PORT_DNS": "53",
        "MY_SVC_PORT": "tcp://10.0.0.7:80",
        "MY_SVC_PORT_80_TCP": "tcp://10.0.0.7:80",
        "MY_SVC_PORT_80_TCP_PROTO": "tcp",
        "MY_SVC_PORT_80_TCP_PORT": "80",
        "MY_SVC_PORT_80_TCP_ADDR": "10.0.0.7",
        "MY_SVC_PORT_53_UDP": "udp://10.0.0.7:53",
        "MY_SVC_PORT_53_UDP_PROTO": "udp",
        "MY_SVC_PORT_53_UDP_PORT": "53",
        "MY_SVC_PORT_53_UDP_ADDR": "10.0.0.7",
    }


@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?", fullmatch=True))
def test_property_a_host_name_fits_and_does_not_end_with_a_mark(name: str) -> None:
    found = host_name(team_pod(name=name))
    assert name.startswith(found)
    assert 0 < len(found) <= 63
    assert found == name or found[-1] not in "-."
