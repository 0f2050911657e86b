"""Whose job a later execution of a step takes: a retry that of the try before; a clear, or a run that was triggered again, none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from factories import program_request

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of, labels_of
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainJobNameTaken, submit_or_adopt
from trainwright.jobs.state.identity import Submitter
from trainwright.jobs.state.run_folder import folder_of_job
from trainwright.jobs.state.waiters import renewal_patch
from trainwright.jobs.submit.submit_or_adopt import Submitted

STEP = Identity("airflow/dag", "dag/run", "train", submitter=Submitter("monday", "2", adopts_reruns=False))
SetStatus = Callable[..., Any]


def by(**changed: Any) -> Identity:
    """The same step in another execution."""
    return replace(STEP, submitter=replace(STEP.submitter, **changed))


def submitted(cluster: EmbeddedCluster, identity: Identity = STEP, **request: Any) -> Submitted:
    return submit_or_adopt(Submission(cluster, program_request(**request), identity, "default"))


def folder_of(submitted: Submitted) -> str:
    return folder_of_job(submitted.trainjob)


ON_CLAIM = {"workspace": "pvc://claim"}


@pytest.mark.parametrize("execution", [{"clears": "3"}, {"run_instance": "tuesday"}, {}], ids=["cleared", "rerun", "retry"])
@pytest.mark.parametrize("change", [{}, {"env": {"LEARNING_RATE": "2"}}, {"num_nodes": 2}], ids=["same", "other", "nodes"])
@pytest.mark.parametrize("state", ["Complete", "Failed"])
def test_only_the_same_training_after_a_failure_goes_on_in_its_folder(
    cluster: EmbeddedCluster,
    set_status: SetStatus,
    caplog: pytest.LogCaptureFixture,
    execution: dict[str, str],
    change: dict[str, Any],
    state: str,
) -> None:
    first = submitted(cluster, **ON_CLAIM)
    set_status(first.trainjob, state)
    again = submitted(cluster, by(**execution), **ON_CLAIM, **change)
    if state == "Complete" and not execution and not change:
        assert again.adopted, "a success that was lost with its worker is that of the retry"
        return
    goes_on = state == "Failed" and "env" not in change
    assert (folder_of(again) == folder_of(first)) is goes_on
    assert bool([record for record in caplog.records if "training_begins_again" in record.getMessage()]) is not goes_on
    if not goes_on:
        assert folder_of(again).startswith(f"{folder_of(first)}/Again-")
        adopted = submitted(cluster, by(**execution), **ON_CLAIM, **change)
        assert (adopted.name, folder_of(adopted)) == (again.name, folder_of(again)), "a retry of it stays there"
        set_status(again.trainjob, "Failed")
        retried = submitted(cluster, by(**execution), **ON_CLAIM, **change)
        assert (retried.attempt, folder_of(retried)) == (3, folder_of(again)), "so it does after a failure"


def test_training_that_a_wrong_edit_came_between_goes_on_in_its_folder(
    cluster: EmbeddedCluster, set_status: SetStatus, caplog: pytest.LogCaptureFixture
) -> None:
    first = submitted(cluster, **ON_CLAIM, image="example.com/i:1")
    set_status(first.trainjob, "Failed")
    wrong = submitted(cluster, **ON_CLAIM, image="example.com/typo:1")
    (warning,) = (record.getMessage() for record in caplog.records if "training_begins_again" in record.getMessage())
    assert "'example.com/i:1' -> 'example.com/typo:1'" in warning
    set_status(wrong.trainjob, "Failed")
    again = submitted(cluster, **ON_CLAIM, image="example.com/i:1")
    assert folder_of(again) == folder_of(first) != folder_of(wrong)
    set_status(again.trainjob, "Complete")
    assert folder_of(submitted(cluster, by(clears="9"), **ON_CLAIM, image="example.com/i:1")) not in map(
        folder_of, (first, wrong)
    )


@pytest.mark.parametrize("state", ["Failed", "Complete"])
def test_changed_training_goes_on_in_its_folder_if_that_is_asked_for(
    cluster: EmbeddedCluster, set_status: SetStatus, state: str
) -> None:
    first = submitted(cluster, **ON_CLAIM)
    set_status(first.trainjob, state)
    again = submitted(cluster, by(clears="3"), **ON_CLAIM, image="example.com/fixed:1", resume="last")
    assert (again.attempt, folder_of(again)) == (2, folder_of(first))


def test_folder_of_a_deleted_job_is_given_to_no_other(cluster: EmbeddedCluster, set_status: SetStatus) -> None:
    folders = set()
    for clears in ("3", "4"):
        first = submitted(cluster, by(clears="2"), **ON_CLAIM)
        set_status(first.trainjob, "Complete")
        second = submitted(cluster, by(clears=clears), **ON_CLAIM)
        assert second.attempt == 2
        folders.add(folder_of(second))
        for job in (first, second):
            cluster.delete(TRAINJOB, job.name, "default")
    assert len(folders) == 2


def test_job_that_succeeds_while_the_next_is_submitted_keeps_its_folder(
    cluster: EmbeddedCluster, set_status: SetStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submitted(cluster, **ON_CLAIM)

    def succeed(*_: Any, **__: Any) -> None:
        set_status(first.trainjob, "Complete")

    monkeypatch.setattr("trainwright.jobs.submit.submit_or_adopt.wait_until_pods_ended", succeed)
    assert folder_of(submitted(cluster, by(clears="3"), **ON_CLAIM)) != folder_of(first)


def test_notes_of_a_job_whose_manifest_is_submitted_again_are_dropped(cluster: EmbeddedCluster) -> None:
    foreign = {names.AWAITED_BY_ANNOTATION: "{}", names.FOLDER_SINCE_ANNOTATION: "9" * 5000, names.WAITER_LEASE_ANNOTATION: "30"}
    kept = {"team": "a", names.NODE_PRICE_ANNOTATION: "2 USD"}
    labels = {names.DAG_LABEL: "d", "team": "a"}
    made = submitted(cluster, Identity("ann", "run", "train"), annotations={**foreign, **kept}, labels=labels, **ON_CLAIM)
    noted = annotations_of(made.trainjob)
    assert not foreign.keys() & noted.keys()
    assert kept.items() <= noted.items()
    assert names.DAG_LABEL not in labels_of(made.trainjob)


def test_an_export_of_the_training_before_is_not_that_of_the_next(cluster: EmbeddedCluster, set_status: SetStatus) -> None:
    asked: list[str] = []

    def latest(step: Identity) -> str:
        asked.append(step.exports)
        return ""

    for execution in ({}, {"clears": "3"}):
        request = program_request(runtime="trl-sft", command=[], args=[], **ON_CLAIM)
        made = submit_or_adopt(Submission(cluster, request, by(**execution), "default", latest_checkpoint=latest))
        set_status(made.trainjob, "Complete")
    assert len(set(asked)) == 2


@pytest.mark.parametrize("state", ["", "Complete"])
def test_retry_whose_request_has_changed_names_the_changes(
    cluster: EmbeddedCluster, set_status: SetStatus, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    first = submitted(cluster, num_nodes=1, env={"TRY": "1"})
    if state:
        set_status(first.trainjob, state)
    again = submitted(cluster, by(task_instance="2"), num_nodes=2, env={"TRY": "2"})
    assert (again.adopted, again.name == first.name) == (not state, not state)
    (warning,) = (record.getMessage() for record in caplog.records if "request_changed" in record.getMessage())
    assert "trainer.numNodes: 1 -> 2" in warning
    assert "trainer.env.TRY.value: '1' -> '2'" in warning


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_training_on_changed_inputs_is_named_in_two_lines(cluster: EmbeddedCluster, kind: str) -> None:
    first, later = ({f"{kind}_digest": f"sha256:{letter * 64}"} for letter in "ab")
    identity = Identity("ann", "run", "train")
    job = submitted(cluster, identity, workspace="pvc://claim", **first)
    with pytest.raises(TrainJobNameTaken) as caught:
        submitted(cluster, identity, workspace="pvc://claim", **later)
    changed, advice = str(caught.value).splitlines()
    assert changed == f"the {kind} has changed since this run began: it was sha256:{'a' * 64}, and is sha256:{'b' * 64}"
    assert advice.endswith(f"restore its {kind}; to train it again, delete the TrainJob {job.name!r}")


def test_a_step_that_cannot_know_who_it_is_waits_while_another_one_renews_the_lease(cluster: EmbeddedCluster) -> None:
    unsure = Identity("kfp", "run", "train", submitter=Submitter(is_certain=False))
    first = submitted(cluster, unsure)
    cluster.patch(TRAINJOB, first.name, renewal_patch(first.trainjob, 1, datetime.now(UTC)), "default")
    stop = threading.Event()
    found: list[Submitted] = []
    waiting = threading.Thread(
        target=lambda: found.append(submit_or_adopt(Submission(cluster, program_request(), unsure, "default"), stop=stop)),
        daemon=True,
    )
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    assert not found
    cluster.patch(TRAINJOB, first.name, {"metadata": {"annotations": {names.WAITER_RENEWED_ANNOTATION: None}}}, "default")
    waiting.join(20)
    assert [(one.adopted, one.name) for one in found] == [(True, first.name)]


def test_two_steps_that_take_themselves_for_one_train_one_after_the_other(
    cluster: EmbeddedCluster, set_status: SetStatus
) -> None:
    unsure = Identity("kfp", "run", "train", submitter=Submitter(is_certain=False))
    first = submitted(cluster, unsure)
    cluster.patch(TRAINJOB, first.name, renewal_patch(first.trainjob, 1, datetime.now(UTC)), "default")
    found: list[Submitted] = []
    waiting = threading.Thread(target=lambda: found.append(submitted(cluster, unsure, num_nodes=2)), daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    set_status(first.trainjob, "Complete")
    waiting.join(20)
    assert [(one.adopted, one.attempt, one.trainjob["spec"]["trainer"]["numNodes"]) for one in found] == [(False, 2, 2)]


def in_try(number: int, waiter: str) -> Identity:
    return by(task_instance="ti", waiter=waiter, labels={names.TRY_NUMBER_LABEL: str(number)})


def test_a_try_that_adopts_a_job_is_noted_as_the_one_that_follows_it(cluster: EmbeddedCluster, set_status: SetStatus) -> None:
    first = submitted(cluster, in_try(1, "first"))
    submitted(cluster, in_try(2, "second"))
    set_status(first.trainjob, "Failed")
    assert submitted(cluster, in_try(2, "third")).name == first.name, "ended while the second try followed it"
    assert submitted(cluster, in_try(3, "fourth")).attempt == 2
