"""The CronJob that suspends abandoned jobs: what it runs, and that its role allows that and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from support.rbac_evaluator import Rbac
from typer.testing import CliRunner

from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.api.objects import name_of
from trainwright.cli import app
from trainwright.cluster.delegating import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.state.waiter_lease import renewal_patch
from trainwright.jobs.submit.rbac import READ_WORKFLOW
from trainwright.steps.clean import suspend_abandoned

ACCOUNT = "team:trainwright-clean-up"


def printed(*options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["rbac", "-n", "team", "--for", "kfp", *options])
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


class Recording(DelegatingCluster):
    """Notes the verbs and resources of its requests."""

    def __init__(self, cluster: EmbeddedCluster):
        super().__init__(cluster)
        self.made: set[tuple[str, str]] = set()

    def get(self, kind: Kind, *arguments: Any, **more: Any) -> Any:
        self.made.add(("get", kind.resource))
        return super().get(kind, *arguments, **more)

    def list(self, kind: Kind, *arguments: Any, **more: Any) -> Any:
        self.made.add(("list", kind.resource))
        return super().list(kind, *arguments, **more)

    def patch(self, kind: Kind, *arguments: Any, **more: Any) -> Any:
        self.made.add(("patch", kind.resource))
        return super().patch(kind, *arguments, **more)


def test_the_role_is_what_cleaning_asks_for(cluster: EmbeddedCluster, job: dict[str, Any]) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    cluster.patch(TRAINJOB, name_of(job), renewal_patch(job, 600, long_ago), "default")
    recording = Recording(cluster)
    (cleaned,) = suspend_abandoned(recording, "default")
    assert not cleaned.failed
    assert cluster.get(TRAINJOB, name_of(job), "default")["spec"]["suspend"] is True
    (role,) = [
        obj for obj in printed("--clean-up") if obj["kind"] == "Role" and obj["metadata"]["name"] == ACCOUNT.partition(":")[2]
    ]
    granted = {
        (verb, f"{rule['resources'][0]}.{rule['apiGroups'][0]}".rstrip(".")) for rule in role["rules"] for verb in rule["verbs"]
    }
    assert granted == recording.made


@pytest.mark.parametrize(
    ("mode", "modes"), [("trainjob", ["trainjob"]), ("jobset", ["jobset"]), ("auto", ["trainjob", "jobset"])]
)
def test_a_cron_job_for_each_kind_of_job(monkeypatch: pytest.MonkeyPatch, mode: str, modes: list[str]) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", "registry.example.com/{image}:1")
    objects = printed("--mode", mode, "--clean-up")
    containers = [
        obj["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0] for obj in objects if obj["kind"] == "CronJob"
    ]
    assert [(one["image"], one["args"]) for one in containers] == [
        ("registry.example.com/launcher:1", ["--abandoned", "--yes", "--namespace=team", f"--submission-mode={each}"])
        for each in modes
    ]
    rbac = Rbac([obj for obj in objects if "rbac" in obj["apiVersion"]])
    assert not rbac.allows(ACCOUNT, READ_WORKFLOW.permission("team"))


def test_workflows_are_read_by_steps_of_pipelines_only() -> None:
    def reads(*options: str) -> bool:
        result = CliRunner().invoke(app, ["rbac", "-n", "team", *options])
        return Rbac(list(yaml.safe_load_all(result.stdout))).allows("team:runner", READ_WORKFLOW.permission("team"))

    assert reads("--for", "kfp", "--service-account", "runner")
    assert not reads("--service-account", "runner")
    assert not reads("--for", "airflow", "--service-account", "runner")
    assert not any(obj["kind"] == "CronJob" for obj in printed())
