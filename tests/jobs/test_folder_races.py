"""Two jobs that claim one run's folder in the same moment, where the one that has to go was interrupted or may not delete."""

from __future__ import annotations

from typing import Any

import pytest
from factories import train_request

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of, is_deleting, name_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, RunFolderTaken, Submission, submit_or_adopt
from trainwright.jobs.submit import creation

REQUEST = train_request(workspace="pvc://shared", dataset_uri="hf://a/b", model_uri="hf://a/b")
OURS = Identity("kfp", "run", "train")


class Killed(Exception):
    """Stands for SIGKILL."""


def another_first(cluster: EmbeddedCluster, wanted: dict[str, Any]) -> None:
    """Somebody else's job for the same folder, created after nobody was found to hold it."""
    annotations = {**annotations_of(wanted), names.OWNER_ANNOTATION: "airflow/dag/run/train"}
    cluster.create({**wanted, "metadata": {**wanted["metadata"], "name": "theirs", "annotations": annotations}})


def jobs(cluster: EmbeddedCluster) -> list[str]:
    """Those that are not on their way out: nobody collects garbage here."""
    return sorted(name_of(job) for job in cluster.list(TRAINJOB, "default").items if not is_deleting(job))


@pytest.mark.medium
def test_a_try_that_was_killed_before_it_looked_is_withdrawn_by_the_next(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(creation, "check_holder", lambda _cluster, wanted, _owners: another_first(cluster, wanted))
        patched.setattr(creation, "resolve_holder_conflict", killed)
        with pytest.raises(Killed):
            submit_or_adopt(Submission(cluster, REQUEST, OURS, "default"))
    assert len(jobs(cluster)) == 2
    with pytest.raises(RunFolderTaken, match=r"'theirs' of airflow/dag/run/train.*this one was deleted"):
        submit_or_adopt(Submission(cluster, REQUEST, OURS, "default"))
    assert jobs(cluster) == ["theirs"]


def test_a_job_that_cannot_be_withdrawn_is_named(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise Forbidden("trainjobs may not be deleted")

    monkeypatch.setattr(creation, "check_holder", lambda _cluster, wanted, _owners: another_first(cluster, wanted))
    monkeypatch.setattr(EmbeddedCluster, "delete", refused)
    with pytest.raises(RunFolderTaken, match=rf"{OURS.name()!r} cannot be deleted: .*may not be deleted; delete it manually"):
        submit_or_adopt(Submission(cluster, REQUEST, OURS, "default"))
