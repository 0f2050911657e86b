"""What a container would see and a process on the host does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.controlplane.node.expansion import ArgumentsTooLong, PathMapping, expand_words
from trainwright.controlplane.node.network.pod_network import RendezvousPorts

MOUNTS = (
    ("/workspace", Path("/host/w")),
    ("/workspace/deep", Path("/host/d")),
    ("/var/run/secrets/kubeflow/trainer", Path("/host/t")),
)
MAPPING = PathMapping(MOUNTS, subdomain="demo", namespace="team", port=41234)


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/workspace", "/host/w"),
        ("/workspace/", "/host/w/"),
        ("/workspace/dataset", "/host/w/dataset"),
        ("/workspace/deep/x", "/host/d/x"),
        ("/workspaces", "/workspaces"),
        ("/my/workspace/x", "/my/workspace/x"),
        ("a/workspace", "a/workspace"),
        ("--out=/workspace/o", "--out=/host/w/o"),
        ("cp /workspace/a /workspace/b; ls '/workspace'", "cp /host/w/a /host/w/b; ls '/host/w'"),
        ("/usr/bin:/workspace/bin", "/usr/bin:/host/w/bin"),
        ("file:///workspace/x", "file:///host/w/x"),
        ("https://host/workspace/x", "https://host/workspace/x"),
        ("demo-node-0-0.demo", "127.0.0.1"),
        ("demo-node-0-0.demo:29500", "127.0.0.1:41234"),
        ("demo-node-0-0.demo:29501", "127.0.0.1:29501"),
        ("http://demo-node-0-1.demo.team.svc.cluster.local/x", "http://127.0.0.1/x"),
        ("demo-node-0-0.demolition", "demo-node-0-0.demolition"),
        ("x.demo-node-0-0.demo.com", "x.demo-node-0-0.demo.com"),
    ],
)
def test_commands_and_variables(text: str, rewritten: str) -> None:
    assert MAPPING.rewrite(text) == rewritten


def test_the_rendezvous_port_where_it_stands_alone() -> None:
    variables = {"PET_MASTER_PORT": "29500", "DMLC_TRACKER_PORT": "29500", "MY_PORT": "29500", "MASTER_PORT": "1234"}
    assert MAPPING.variables(variables) == variables | {"PET_MASTER_PORT": "41234", "DMLC_TRACKER_PORT": "41234"}


def test_paths_below_a_mount() -> None:
    assert MAPPING.host_path("/workspace/deep/a") == Path("/host/d/a")
    assert MAPPING.host_path("/elsewhere") is None


@pytest.mark.parametrize(
    ("keeps_names", "hosts"), [(False, ("127.0.0.1", "127.0.0.1")), (True, ("demo-node-0-0.demo", "demo-node-0-1.demo"))]
)
def test_every_node_that_listens_has_a_port(keeps_names: bool, hosts: tuple[str, str]) -> None:
    ports = {"demo-node-0-0": 41234, "demo-node-0-1": 41235}
    mapping = PathMapping(subdomain="demo", namespace="team", port=41234, port_of_host=ports.get, keeps_names=keeps_names)
    text = '{"worker": ["demo-node-0-0.demo:29500", "demo-node-0-1.demo:29500"]}'
    assert mapping.rewrite(text) == f'{{"worker": ["{hosts[0]}:41234", "{hosts[1]}:41235"]}}'


def test_text_with_many_paths_of_mounts_is_refused_in_little_memory() -> None:
    mapping = PathMapping((("/a", Path("/host/" + "d" * 4000)),))
    with pytest.raises(ArgumentsTooLong):
        mapping.rewrite("/a," * 40_000)
    with pytest.raises(ArgumentsTooLong, match="all of more than"):
        expand_words(["/a," * 20] * 40, {}, mapping.rewrite)


def test_ports_of_nodes_are_kept_and_given_up_with_those_of_their_jobset(tmp_path: Path) -> None:
    ports = RendezvousPorts(tmp_path / "ports.json")
    first, second = ports.port_for("a", "demo-node-0-0"), ports.port_for("a", "demo-node-0-1")
    assert first == ports.port_for("a")
    assert len({first, second, ports.port_for("ab", "demo-node-0-1")}) == 3
    again = RendezvousPorts(tmp_path / "ports.json")
    assert again.port_for("a", "demo-node-0-1") == second
    again.release("a")
    assert sorted(json.loads((tmp_path / "ports.json").read_bytes())) == ["ab/demo-node-0-1"]
