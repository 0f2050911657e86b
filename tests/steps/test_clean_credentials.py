"""Secrets of submitters that were killed are found and deleted; those of jobs, of submissions under way and of others are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from factories import program_request
from support.cluster_without_controllers import set_status  # noqa: F401  fixtures
from typer.testing import CliRunner

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import SECRET
from trainwright.api.objects import name_of
from trainwright.cli import clean as command
from trainwright.cli.app import app
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.submit.submission import StepCredentials, ensure_credentials, secret_name
from trainwright.steps.ends import clean
from trainwright.steps.ends.clean import delete_left, left_credentials

VALUES = StepCredentials({"HF_TOKEN": "hf_secret"})


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets may be left over as soon as they are there."""
    monkeypatch.setattr(clean, "SUBMISSION", timedelta())


def secret(cluster: EmbeddedCluster, run: str) -> str:
    identity = Identity("kfp", run, "train")
    ensure_credentials(cluster, identity, "default", VALUES)
    return secret_name(identity)


def test_only_what_nobody_will_delete_is_left(cluster: EmbeddedCluster, set_status: Any) -> None:  # noqa: F811
    killed, ended = secret(cluster, "killed"), secret(cluster, "ended")
    secret(cluster, "waiting")
    submit_or_adopt(Submission(cluster, program_request(), Identity("kfp", "waiting", "train"), "default"))
    set_status(
        submit_or_adopt(Submission(cluster, program_request(), Identity("kfp", "ended", "train"), "default")).trainjob, "Complete"
    )
    submit_or_adopt(Submission(cluster, program_request(), Identity("kfp", "owned", "train"), "default", credentials=VALUES))
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a-credentials", "namespace": "default"}}
    cluster.create(foreign)
    assert sorted(each.name for each in left_credentials(cluster, "default")) == sorted([killed, ended])
    assert [each.name for each in left_credentials(cluster, "default", run="killed")] == [killed]
    assert left_credentials(cluster, "default", older_than=timedelta(days=1)) == []
    done = list(delete_left(cluster, left_credentials(cluster, "default")))
    assert [each.outcome for each in done] == ["deleted"] * 2
    assert len(cluster.list(SECRET, "default").items) == 3
    assert [each.outcome for each in delete_left(cluster, done)] == ["gone already"] * 2


def test_a_submission_under_way_keeps_its_secret(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "SUBMISSION", timedelta(minutes=15))
    secret(cluster, "new")
    assert left_credentials(cluster, "default") == []


@pytest.fixture
def asked(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(command, "jobs_cluster_for", lambda *_: cluster)

    def ask(*words: str) -> Any:
        result = CliRunner().invoke(app, ["clean", "--run", "killed", "-n", "default", *words])
        assert result.exit_code == 0, result.output
        return result.output

    return ask


def test_the_command_shows_then_deletes(cluster: EmbeddedCluster, asked: Callable[..., Any]) -> None:
    name = secret(cluster, "killed")
    assert "0 jobs, 1 Secrets; add --yes" in asked()
    assert "hf_secret" not in asked("-o", "json")
    assert [name_of(each) for each in cluster.list(SECRET, "default").items] == [name]
    (deleted,) = json.loads(asked("--yes", "-o", "json"))["secrets"]
    assert (deleted["name"], deleted["outcome"]) == (name, "deleted")
    assert cluster.list(SECRET, "default").items == []


def test_without_the_right_to_list_secrets_jobs_are_still_cleaned(
    asked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise Forbidden("secrets is forbidden")

    monkeypatch.setattr(command, "left_credentials", refuse)
    assert "0 jobs, Secrets were not looked at" in asked("--yes")
