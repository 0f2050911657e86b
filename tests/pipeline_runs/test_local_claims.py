"""Tasks of a run on this machine use the folder of the claim that they mount."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainwright.pipeline_runs.local_graph import claim_mounts, use_claims
from trainwright.pipeline_runs.local_values import BadValue

TEXT = {"parameterType": "STRING"}


def component(**inputs: Any) -> dict[str, Any]:
    return {"inputDefinitions": {"parameters": {"workspace_path": {**TEXT, "defaultValue": "/workspace"}, **inputs}}}


def mount(path: str = "/workspace", **more: Any) -> dict[str, Any]:
    return {"mountPath": path, "pvcNameParameter": {"runtimeValue": {"constant": "training"}}, **more}


def used(inputs: dict[str, Any], folder: Path | str, *mounts: dict[str, Any], of: dict[str, Any] | None = None) -> dict[str, Any]:
    def name_of(given: dict[str, Any]) -> str:
        return str(given["runtimeValue"]["constant"])

    return use_claims(
        of or component(export_uri=TEXT), inputs, mounts or (mount(),), name_of, {"training": str(folder)}.__getitem__
    )


@pytest.mark.parametrize(
    ("given", "below"),
    [
        ({}, {"workspace_path": ""}),
        ({"workspace_path": "/workspace/team a"}, {"workspace_path": "/team a"}),
        ({"export_uri": "file:///workspace/out"}, {"workspace_path": "", "export_uri": "/out"}),
    ],
)
def test_paths_below_the_mount_are_in_the_folder_of_the_claim(
    tmp_path: Path, given: dict[str, Any], below: dict[str, str]
) -> None:
    found = used(given, tmp_path)
    assert {name: value.removeprefix("file://") for name, value in found.items()} == {
        name: f"{tmp_path}{path}" for name, path in below.items()
    }
    assert found.get("export_uri", "file://").startswith("file://")


def test_paths_outside_of_the_mount_are_unchanged(tmp_path: Path) -> None:
    given = {"workspace_path": "/workspaces", "export_uri": "s3://workspace/x"}
    assert used(given, tmp_path) == given
    plain = {"inputDefinitions": {"parameters": {"path": TEXT}}}
    assert used({"path": "/workspace"}, tmp_path, of=plain) == {"path": "/workspace"}


def test_sub_path_is_made_below_the_folder(tmp_path: Path) -> None:
    assert used({}, tmp_path, mount(subPath="team/a")) == {"workspace_path": str(tmp_path / "team/a")}
    assert (tmp_path / "team/a").is_dir()
    for outside in ("../b", "/etc"):
        with pytest.raises(BadValue, match="leads out of the claim"):
            used({}, tmp_path, mount(subPath=outside))


def test_export_path_of_a_training_is_unchanged(tmp_path: Path) -> None:
    training = component(export_uri=TEXT, task_config={"parameterType": "TASK_CONFIG"})
    given = {"export_uri": "file:///workspace/out"}
    assert used(given, tmp_path, of=training) == {**given, "workspace_path": str(tmp_path)}


def test_claim_without_a_folder_here_is_refused() -> None:
    with pytest.raises(BadValue, match="the claim 'training' has no folder on this machine"):
        used({}, "")


def test_mounts_are_found_by_executor() -> None:
    settings = {"exec-a": {"pvcMount": [mount()]}, "exec-b": {"secretAsEnv": []}}
    assert claim_mounts({"platforms": {"kubernetes": {"deploymentSpec": {"executors": settings}}}}) == {"exec-a": [mount()]}
    assert claim_mounts({}) == {}
