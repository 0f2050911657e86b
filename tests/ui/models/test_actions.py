"""Actions of the page: on the job and the alias that the user saw, once for each decision, and logged without surprises."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.cluster_without_controllers import current
from support.refusing_cluster import refusing
from support.written_exports import write_export
from ui_calls import MakeCall

from trainwright.api import names
from trainwright.api.errors import Conflict, Forbidden, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import is_deleting, name_of, uid_of
from trainwright.api.phase import superseded
from trainwright.checkpoints.errors import CheckpointError, FigureNotFinite, PromotionConflict
from trainwright.checkpoints.promotion import Alias
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import suspend_job
from trainwright.steps.ends.change_jobs import JobSuperseded
from trainwright.storage.errors import StorageError
from trainwright.ui import actions
from trainwright.ui.call import Page

Job = dict[str, Any]
OTHER = "sha256:" + "0" * 64
CLICK = "0123456789abcdef"
OF_JOBS = [actions.suspend, actions.resume, actions.cancel, actions.delete]


def body_of(job: Job) -> Job:
    return {"namespace": "default", "name": name_of(job), "uid": uid_of(job)}


def test_suspend_and_resume_twice_change_once(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    call = make_call(body=body_of(job))
    assert "it is suspended, and resumes" in actions.suspend(call)["message"]
    version = current(cluster, job)["metadata"]["resourceVersion"]
    assert actions.suspend(call)["outcome"] == "it is suspended already"
    assert current(cluster, job)["metadata"]["resourceVersion"] == version
    assert actions.resume(call)["outcome"] == "it is resumed"
    assert actions.resume(call)["outcome"] == "it was not suspended"
    assert not current(cluster, job)["spec"].get("suspend")


@pytest.mark.parametrize("act", OF_JOBS)
def test_another_job_of_the_name_is_not_touched(
    cluster: EmbeddedCluster, job: Job, make_call: MakeCall, act: Callable[..., Any]
) -> None:
    before = current(cluster, job)
    with pytest.raises(Conflict, match="was replaced by another job"):
        act(make_call(body={**body_of(job), "uid": "another"}))
    assert current(cluster, job) == before


@pytest.mark.parametrize("act", OF_JOBS)
def test_a_job_that_is_gone_is_not_found(job: Job, make_call: MakeCall, act: Callable[..., Any]) -> None:
    with pytest.raises(NotFound, match="it no longer exists"):
        act(make_call(body={**body_of(job), "name": "gone"}))


@pytest.mark.parametrize("body", [{}, {"namespace": "default", "name": "x"}, {"namespace": "default", "name": 5, "uid": "u"}])
def test_an_incomplete_body_is_refused(make_call: MakeCall, body: Job) -> None:
    with pytest.raises(ValueError, match="expected a text"):
        actions.suspend(make_call(body=body))


def test_a_finished_job_is_only_deleted(cluster: EmbeddedCluster, job: Job, set_status: Any, make_call: MakeCall) -> None:
    set_status(job, "Complete")
    call = make_call(body=body_of(job))
    for act in (actions.suspend, actions.cancel):
        with pytest.raises(Conflict, match="has already ended: Succeeded"):
            act(call)
    assert actions.resume(call)["outcome"] == "it had already ended"
    assert actions.delete(call)["outcome"] == "it is deleted"
    assert is_deleting(current(cluster, job))


def test_cancel_deletes_and_a_second_click_changes_nothing(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    call = make_call(body=body_of(job))
    assert actions.cancel(call)["outcome"] == "it is deleted"
    assert is_deleting(current(cluster, job))
    assert actions.cancel(call)["outcome"] == "it is deleted"
    for act in (actions.suspend, actions.resume):
        with pytest.raises((Conflict, NotFound)):
            act(call)


def test_a_queued_job_is_left_to_its_queue(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    queued = {"metadata": {"labels": {names.QUEUE_LABEL: "q"}}, "spec": {"suspend": True}}
    cluster.patch(TRAINJOB, name_of(job), queued, "default")
    call = make_call(body=body_of(job))
    assert "its queue has suspended it" in actions.suspend(call)["outcome"]
    assert actions.resume(call)["outcome"] == "it waits in its queue, which starts it"
    assert current(cluster, job)["spec"]["suspend"] is True


def test_a_superseded_job_stays_suspended(cluster: EmbeddedCluster, job: Job, make_call: MakeCall) -> None:
    suspend_job(cluster, job, superseded("its task was cleared"))
    with pytest.raises(JobSuperseded, match="another job of its step writes"):
        actions.resume(make_call(body=body_of(job)))


def test_resuming_does_not_wait_for_pods_that_still_end(
    cluster: EmbeddedCluster, job: Job, add_pod: Any, make_call: MakeCall
) -> None:
    cluster.patch(TRAINJOB, name_of(job), {"spec": {"suspend": True}}, "default")
    add_pod(job, phase="Running")
    with pytest.raises(Conflict, match="have not ended yet"):
        actions.resume(make_call(body=body_of(job)))


def test_a_missing_permission_is_passed_on(job: Job, cluster: EmbeddedCluster, make_call: MakeCall) -> None:
    read_only = refusing(cluster, "patch", error=Forbidden('cannot patch resource "trainjobs"'))
    with pytest.raises(Forbidden, match="cannot patch"):
        actions.suspend(make_call(body=body_of(job), of_cluster=read_only))


def test_an_action_is_logged_in_one_line(job: Job, make_call: MakeCall, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "trainwright.ui.actions"):
        actions.suspend(make_call(body=body_of(job)))
    (record,) = caplog.records
    assert record.getMessage().startswith("event=page_action action=suspend user='jane' job=")
    assert "\n" not in record.getMessage()


def test_a_failed_action_is_logged_and_raised(job: Job, make_call: MakeCall, caplog: pytest.LogCaptureFixture) -> None:
    (route,) = (each for each in actions.ROUTES if each.path == "/actions/suspend")
    with pytest.raises(Conflict):
        route.answer(make_call(body={**body_of(job), "uid": "another\nevent=forged"}))
    (record,) = caplog.records
    assert record.getMessage().startswith("event=page_action_failed action=suspend user='jane' error=Conflict")
    assert "\n" not in record.getMessage()


@pytest.fixture
def exports(tmp_path: Path, page: Page) -> Path:
    return tmp_path / "exports"


def promotion(exports: Path, run: str, digest: str, expected: str, **more: str) -> Job:
    return {"uri": f"file://{exports}/{run}/checkpoint-5", "digest": digest, "expected": expected, **more}


def test_promoting_twice_changes_once(exports: Path, make_call: MakeCall) -> None:
    one = write_export(exports, "one")
    call = make_call(body=promotion(exports, "one", one.digest, "", reason="a\nb"))
    shown = actions.promote(call)["alias"]
    assert (shown["current"]["digest"], shown["current"]["reason"], shown["history"]) == (one.digest, "a b", [])
    assert actions.promote(call)["alias"] == shown


def test_a_stale_page_does_not_overwrite_a_newer_champion(exports: Path, make_call: MakeCall) -> None:
    one, two, three = (write_export(exports, run) for run in ("one", "two", "three"))
    actions.promote(make_call(body=promotion(exports, "one", one.digest, "")))
    actions.promote(make_call(body=promotion(exports, "two", two.digest, one.digest)))
    with pytest.raises(PromotionConflict, match="another export was promoted meanwhile"):
        actions.promote(make_call(body=promotion(exports, "three", three.digest, one.digest)))
    with pytest.raises(PromotionConflict):
        actions.roll_back(make_call(body={"uri": f"file://{exports}", "expected": one.digest, "click": CLICK}))
    record = Alias(f"file://{exports}").read()
    assert record is not None
    assert record.current.manifest == two.digest


def test_an_export_that_was_replaced_is_not_promoted(exports: Path, make_call: MakeCall) -> None:
    write_export(exports, "one")
    with pytest.raises(CheckpointError, match="has the digest"):
        actions.promote(make_call(body=promotion(exports, "one", OTHER, "")))
    assert Alias(f"file://{exports}").read() is None


def test_a_double_click_rolls_back_once(exports: Path, make_call: MakeCall) -> None:
    one, two = write_export(exports, "one"), write_export(exports, "two")
    actions.promote(make_call(body=promotion(exports, "one", one.digest, "")))
    actions.promote(make_call(body=promotion(exports, "two", two.digest, one.digest)))
    call = make_call(body={"uri": f"file://{exports}", "expected": two.digest, "click": CLICK})
    together = threading.Barrier(2)

    def click(_number: int) -> Any:
        together.wait(10)
        return actions.roll_back(call)["alias"]["current"]["digest"]

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(click, range(2))) == [one.digest, one.digest]
    record = Alias(f"file://{exports}").read()
    assert record is not None
    assert [entry.manifest for entry in (record.current, *record.history)] == [one.digest, two.digest, one.digest]


def test_recorded_figures_are_kept_when_an_export_is_promoted_again(exports: Path, make_call: MakeCall) -> None:
    one, two = write_export(exports, "one"), write_export(exports, "two")
    Alias(f"file://{exports}").promote(f"file://{exports}/one/checkpoint-5", evaluation={"loss": 1.5})
    actions.promote(make_call(body=promotion(exports, "two", two.digest, one.digest)))
    shown = actions.promote(make_call(body=promotion(exports, "one", one.digest, two.digest)))["alias"]
    assert shown["current"]["evaluation"] == {"loss": 1.5}


def test_figures_come_from_the_evaluation_in_a_workspace(exports: Path, workspace: Path, make_call: MakeCall) -> None:
    one = write_export(exports, "one")
    folder = workspace / "runs" / "one" / "evaluation" / one.digest.removeprefix("sha256:")[:12]
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"before": {"loss": 3}, "after": {"loss": 2.5, "x": NaN}, "rows_digest": "sha256:r"}')
    shown = actions.promote(make_call(body=promotion(exports, "one", one.digest, "")))["alias"]
    assert shown["current"]["evaluation"] == {"loss": 2.5, "rows_digest": "sha256:r"}


@pytest.mark.parametrize("loss", ["NaN", "Infinity"])
def test_export_whose_evaluation_has_no_finite_loss_is_not_promoted(
    exports: Path, workspace: Path, make_call: MakeCall, loss: str
) -> None:
    one = write_export(exports, "one")
    folder = workspace / "runs" / "one" / "evaluation" / one.digest.removeprefix("sha256:")[:12]
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(f'{{"before": {{"loss": 3}}, "after": {{"loss": {loss}}}}}')
    with pytest.raises(FigureNotFinite):
        actions.promote(make_call(body=promotion(exports, "one", one.digest, "")))
    assert Alias(f"file://{exports}").read() is None


def test_places_outside_are_neither_promoted_nor_rolled_back(
    exports: Path, tmp_path: Path, make_call: MakeCall, page: Page
) -> None:
    other = write_export(tmp_path / "other", "run")
    with pytest.raises(Forbidden):
        actions.promote(make_call(body=promotion(tmp_path / "other", "run", other.digest, "")))
    with pytest.raises(Forbidden):
        actions.roll_back(make_call(body={"uri": f"file://{tmp_path}/other", "expected": OTHER, "click": CLICK}))
    in_cluster = Page(exports=page.exports)
    one = write_export(exports, "one")
    with pytest.raises(Forbidden, match="runs in a cluster"):
        actions.promote(make_call(body=promotion(exports, "one", one.digest, ""), of_page=in_cluster))
    assert not list((tmp_path / "other").rglob("pins.json"))


@pytest.mark.parametrize("through_link", [False, True])
def test_a_forged_history_leads_nowhere(exports: Path, tmp_path: Path, make_call: MakeCall, through_link: bool) -> None:
    one, other = write_export(exports, "one"), write_export(tmp_path / "other", "run")
    place = tmp_path / "other"
    if through_link:
        (exports / "linked").symlink_to(tmp_path / "other" / "run")
    uri = f"file://{exports}/linked/checkpoint-5" if through_link else f"file://{place}/run/checkpoint-5"
    Alias(f"file://{exports}").promote(f"file://{exports}/one/checkpoint-5")
    record = Alias(f"file://{exports}").read()
    assert record is not None
    forged = record.model_copy(update={"history": (record.current.model_copy(update={"uri": uri, "manifest": other.digest}),)})
    (exports / "champion.json").write_bytes(forged.text())
    with pytest.raises((Forbidden, StorageError)):
        actions.roll_back(make_call(body={"uri": f"file://{exports}", "expected": one.digest, "click": CLICK}))
    assert not list(place.rglob("pins.json"))


@pytest.mark.parametrize(
    "changes",
    [{"digest": "x"}, {"expected": "x"}, {"alias": "../x"}, {"alias": 5}, {"reason": "x" * 600}, {"reason": 5}, {"uri": ""}],
)
def test_invalid_promotions_are_refused(exports: Path, make_call: MakeCall, changes: Job) -> None:
    one = write_export(exports, "one")
    with pytest.raises((ValueError, CheckpointError)):
        actions.promote(make_call(body={**promotion(exports, "one", one.digest, ""), **changes}))
    assert Alias(f"file://{exports}").read() is None


@pytest.mark.parametrize("click", ["", "short", "a b c d e f", "x" * 65])
def test_a_roll_back_names_its_decision(exports: Path, make_call: MakeCall, click: str) -> None:
    with pytest.raises(ValueError, match="click"):
        actions.roll_back(make_call(body={"uri": f"file://{exports}", "expected": OTHER, "click": click}))
