"""The hosts files of a node's pods follow the pods and Services that there are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from factories import pod

from trainwright.controlplane.node.network.pod_network import HOSTS_FILE, PodNetwork, service_names

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


def app_pod(name: str, app: str = "", namespace: str = "team") -> dict[str, Any]:
    return pod(name, namespace=namespace, labels={"app": app} if app else {}, metadata={"uid": f"uid-{name}"})


def service(name: str = "db", namespace: str = "team", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, "spec": spec}


@pytest.mark.parametrize(
    ("asked", "addresses"),
    [
        (service(selector={"app": "db"}), ["127.1.0.1", "127.1.0.3"]),
        (service(selector={"app": "db"}, clusterIP="None"), ["127.1.0.1", "127.1.0.3"]),
        (service(selector={"app": "db", "role": "main"}), []),
        (service(selector={"app": "db"}, namespace="other"), ["127.1.0.4"]),
        (service(selector={}), []),
        (service(), []),
        (service(selector={"app": "db"}, type="ExternalName", externalName="example.com"), []),
    ],
)
def test_a_service_has_the_addresses_of_the_pods_that_it_selects(asked: dict[str, Any], addresses: list[str]) -> None:
    pods = [app_pod("a", "db"), app_pod("b", "web"), app_pod("c", "db"), app_pod("d", "db", "other")]
    known = [(each, f"127.1.0.{index}") for index, each in enumerate(pods, start=1)]
    namespace = asked["metadata"]["namespace"]
    assert service_names([asked], known) == [(namespace, "db", address) for address in addresses]


@pytest.fixture
def network(tmp_path: Path) -> PodNetwork:
    return PodNetwork(tmp_path, tmp_path / "pods", lambda: None)


@linux
def test_pods_learn_of_services_and_their_pods_and_forget_them(network: PodNetwork, tmp_path: Path) -> None:
    client, server = app_pod("client"), app_pod("server", "db")
    hosts = tmp_path / "pods/uid-client" / HOSTS_FILE
    network.add(client)
    assert "db" not in hosts.read_text()
    network.set_service(service(selector={"app": "db"}), exists=True)
    assert "db" not in hosts.read_text()
    network.add(server)
    line = f"{network.address_of(server)}\tdb.team.svc.cluster.local\tdb.team.svc\tdb.team\tdb\n"
    assert line in hosts.read_text()
    network.remove(server)
    assert "db" not in hosts.read_text()
    network.add(server)
    network.set_service(service(selector={"app": "db"}), exists=False)
    assert "db" not in hosts.read_text()


@linux
def test_the_folder_of_a_pod_that_is_being_removed_is_not_made_again(network: PodNetwork, tmp_path: Path) -> None:
    network.add(app_pod("client"))
    folder = tmp_path / "pods/uid-client"
    (folder / HOSTS_FILE).unlink()
    folder.rmdir()
    network.set_service(service(selector={"app": "db"}), exists=True)
    network.add(app_pod("server", "db"))
    assert not folder.exists()
