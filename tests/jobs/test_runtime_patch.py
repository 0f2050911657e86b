"""The shape of a runtime patch, and the one volume by which a claim is mounted."""

from __future__ import annotations

import pytest

from trainwright.jobs.manifest.runtime_patch import claim_volume, runtime_patch
from trainwright.jobs.request.workspace import Workspace, is_claim_of

WORKSPACE = Workspace.parse("pvc://shared/team")


def test_each_replicated_job_gets_its_patch() -> None:
    patch = runtime_patch("example.com/test", {"node": {"nodeName": "a"}, "launcher": {}})
    assert patch["manager"] == "example.com/test"
    jobs = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert [(job["name"], job["template"]["spec"]["template"]["spec"]) for job in jobs] == [
        ("node", {"nodeName": "a"}),
        ("launcher", {}),
    ]


@pytest.mark.parametrize(
    ("claim", "workspace", "expected"), [("shared", WORKSPACE, True), ("other", WORKSPACE, False), ("", None, False)]
)
def test_the_claim_of_the_workspace_is_told_from_others(claim: str, workspace: Workspace | None, expected: bool) -> None:
    assert is_claim_of(workspace, claim) is expected


def test_the_claim_of_the_workspace_is_mounted_by_its_own_volume_and_another_by_a_new_one() -> None:
    assert claim_volume("source", "shared", WORKSPACE) == ("initializer", {})
    assert claim_volume("source", "other", WORKSPACE) == (
        "source",
        {"volumes": [{"name": "source", "persistentVolumeClaim": {"claimName": "other"}}]},
    )
    _, added = claim_volume("source", "other", None, read_only=True)
    assert added["volumes"][0]["persistentVolumeClaim"] == {"claimName": "other", "readOnly": True}
