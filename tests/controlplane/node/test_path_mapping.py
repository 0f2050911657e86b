"""What a container would see and a process on the host does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.controlplane.node.path_mapping import PathMapping

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
