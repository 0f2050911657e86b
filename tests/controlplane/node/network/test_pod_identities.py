"""Host names on the machine's network, addresses for many threads, and what holds of any hosts file and any Service."""

from __future__ import annotations

import json
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
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

LABEL = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
ADDRESS = st.integers(1, 250).map(lambda number: f"127.9.0.{number}")


team_pod = partial(pod, namespace="team")


@pytest.mark.parametrize("spec", [{}, {"hostname": "h"}, {"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True}])
def test_on_the_machines_network_a_pod_has_the_machines_name(spec: dict[str, Any]) -> None:
    assert host_name(team_pod(hostNetwork=True, **spec), lambda: "machine") == "machine"
    assert host_name(team_pod(hostNetwork=True, **spec)) == socket.gethostname()
    assert host_name(team_pod(**spec), lambda: "machine") != "machine"


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_threads_get_addresses_of_their_own(tmp_path: Path) -> None:
    addresses = PodAddresses(tmp_path / "a", tmp_path)
    pods = [str(number % 100) for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(addresses.address_for, pods))
        assert len(set(found)) == 100
        assert dict(zip(pods, found, strict=True)) == json.loads((tmp_path / "a").read_text())["addresses"]
        list(pool.map(addresses.release, pods))
    assert json.loads((tmp_path / "a").read_text())["addresses"] == {}


NAMESPACES = st.sampled_from(["team", "other"])


@pytest.mark.medium
@given(
    pods=st.lists(st.tuples(NAMESPACES, LABEL, LABEL, ADDRESS), max_size=6),
    services=st.lists(st.tuples(NAMESPACES, LABEL, ADDRESS), max_size=6),
    aliases=st.lists(st.tuples(ADDRESS, st.lists(LABEL, min_size=1, max_size=3)), max_size=2),
)
def test_property_a_hosts_file_answers_full_names_and_short_ones_of_the_own_namespace(
    pods: list[tuple[str, str, str, str]], services: list[tuple[str, str, str]], aliases: list[tuple[str, list[str]]]
) -> None:
    spec = {"hostAliases": [{"ip": address, "hostnames": names} for address, names in aliases]}
    text = hosts_file(team_pod(**spec), "127.8.0.1", pods, services, "127.0.0.1")
    lines = [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]
    assert all(len(line) > 1 and all(line) for line in lines)
    found: dict[str, set[str]] = {}
    for address, *names in lines:
        for name in names:
            found.setdefault(name, set()).add(address)
    for namespace, host, subdomain, address in pods:
        assert address in found[f"{host}.{subdomain}.{namespace}.svc.cluster.local"]
        assert namespace != "team" or address in found[f"{host}.{subdomain}"]
    for namespace, name, address in services:
        assert address in found[f"{name}.{namespace}.svc.cluster.local"]
        assert namespace != "team" or address in found[name]
    assert found["kubernetes.default.svc"] == {"127.0.0.1"}
    assert "127.8.0.1" in found["p"]
    assert all(address in found[name] for address, names in aliases for name in names)


PORT = st.fixed_dictionaries(
    {"port": st.integers(1, 65535), "name": LABEL}, optional={"protocol": st.sampled_from(["TCP", "UDP", "SCTP"])}
)


@pytest.mark.medium
@given(name=LABEL, ports=st.lists(PORT, min_size=1, max_size=4, unique_by=(lambda port: port["name"], lambda port: port["port"])))
def test_property_each_port_of_a_service_has_its_variables(name: str, ports: list[dict[str, Any]]) -> None:
    service = {"metadata": {"name": name, "namespace": "team"}, "spec": {"ports": ports}}
    found = service_variables([service], "team", "10.0.0.1")
    prefix = name.upper().replace("-", "_")
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", variable) for variable in found)
    assert (found[f"{prefix}_SERVICE_HOST"], found[f"{prefix}_SERVICE_PORT"]) == ("10.0.0.1", str(ports[0]["port"]))
    for port in ports:
        kind = port.get("protocol", "TCP")
        assert found[f"{prefix}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] == str(port["port"])
        assert found[f"{prefix}_PORT_{port['port']}_{kind}"] == f"{kind.lower()}://10.0.0.1:{port['port']}"
