"""Runs that share a volume keep to themselves: on a whole embedded cluster, with real initializers and a small training program."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from factories import train_request
from support.fast_training_cluster import Inputs, Runs, contents, is_of, learned, prepared, running, script, times
from support.scripted_evaluation import loss_after

from trainwright.api import names
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of, labels_of, name_of, uid_of
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.jobs import Identity, RunFolderTaken, Submission, TrainJobFailed, submit_or_adopt
from trainwright.jobs.state.identity import Submitter
from trainwright.steps.checkpoints.export import export_run_checkpoint
from trainwright.steps.ends.retire import retire_run
from trainwright.steps.evaluate import CURVE, RESULT, SUMMARY, EvaluationJob, evaluate_export
from trainwright.steps.requests import EvaluateExport, StepRun
from trainwright.steps.workspace_steps import HereSteps
from trainwright.storage.uri import StorageUri
from trainwright.workspace import prune_runs, read_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with running(tmp_path) as cluster:
        yield cluster


def checkpoints(workspace: Path, run: str) -> list[str]:
    return sorted(path.name for path in (workspace / "runs" / run / "output").glob("checkpoint-*"))


def jobs_of(runs: Runs, run: str) -> list[str]:
    return [name_of(job) for job in runs.cluster.list(TRAINJOB, "default").items if labels_of(job)[names.RUN_LABEL] == run]


def digests(workspace: Path, run: str, inputs: Inputs, are_prepared: bool) -> dict[str, str]:
    return prepared(workspace, run, inputs) if are_prepared else {}


WAYS = pytest.mark.parametrize("are_prepared", [True, False], ids=["digests", "initializers"])


@WAYS
def test_a_second_run_starts_afresh_and_leaves_the_first_as_it_is(runs: Runs, tmp_path: Path, are_prepared: bool) -> None:
    claim = f"after-{are_prepared}".lower()
    workspace, exports = runs.claim(claim), str(StorageUri.from_path(tmp_path / "exports"))
    old, new = runs.inputs("old"), runs.inputs("new")
    runs.train(claim, "first", old, settings={"learning_rate": 0.1}, **digests(workspace, "first", old, are_prepared))
    first = export_run_checkpoint(workspace, exports, run_id="first")
    before = contents(workspace)

    runs.train(claim, "second", new, settings={"learning_rate": 0.2}, **digests(workspace, "second", new, are_prepared))
    second = export_run_checkpoint(workspace, exports, run_id="second")

    after = contents(workspace)
    assert {path: after.get(path) for path in before} == before
    assert (checkpoints(workspace, "first"), checkpoints(workspace, "second")) == (["checkpoint-5"], ["checkpoint-5"])
    assert [first.uri, second.uri] == [f"{exports}/{run}/checkpoint-5" for run in ("first", "second")]
    for run, word, rate, exported in (("first", "old", "0.1", first), ("second", "new", "0.2", second)):
        verify_export(exported.uri, digest=exported.digest)
        restore_checkpoint(exported.uri, tmp_path / f"restored-{run}")
        for folder in (workspace / f"runs/{run}/output/checkpoint-5", tmp_path / f"restored-{run}"):
            assert is_of(folder, word)
            assert learned(folder)["start"] == 0
            assert rate in learned(folder)["arguments"]
    assert json.loads((tmp_path / "exports/first/latest.json").read_bytes())["manifest"] == first.digest


@WAYS
def test_runs_at_the_same_time_train_on_their_own_data(runs: Runs, tmp_path: Path, are_prepared: bool) -> None:
    claim = f"beside-{are_prepared}".lower()
    workspace, exports = runs.claim(claim), str(StorageUri.from_path(tmp_path / "exports"))
    barrier = tmp_path / "barrier"
    barrier.mkdir()

    def whole(run: str) -> None:
        inputs = runs.inputs(run)
        runs.train(claim, run, inputs, env=script(barrier=str(barrier)), **digests(workspace, run, inputs, are_prepared))
        export_run_checkpoint(workspace, exports, run_id=run)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(whole, ("left", "right")))
    for run in ("left", "right"):
        restore_checkpoint(f"{exports}/{run}/checkpoint-5", tmp_path / f"restored-{run}")
        assert is_of(tmp_path / f"restored-{run}", run)
        assert checkpoints(workspace, run) == ["checkpoint-5"]
    assert len(list((workspace / "datasets").glob("[0-9a-f]*"))) == 2


def test_a_failed_run_resumes_from_its_own_checkpoint_and_a_finished_one_is_left_alone(runs: Runs, tmp_path: Path) -> None:
    workspace, inputs, other = runs.claim("again"), runs.inputs("again"), runs.inputs("other")
    failing = tmp_path / "failing"
    failing.touch()
    runs.train("again", "other", other)
    with pytest.raises(TrainJobFailed):
        runs.train("again", "retried", inputs, env=script(fails_while=str(failing)))
    assert checkpoints(workspace, "retried") == ["checkpoint-5"]
    failing.unlink()
    job = runs.train("again", "retried", inputs, env=script(fails_while=str(failing)))
    assert annotations_of(job)[names.ATTEMPT_ANNOTATION] == "2"
    newest = workspace / "runs/retried/output/checkpoint-10"
    assert is_of(newest, "again")
    assert learned(newest)["start"] == 5

    before = contents(workspace), times(workspace)
    again = runs.train("again", "retried", inputs, env=script(fails_while=str(failing)))
    assert uid_of(again) == uid_of(job)
    assert (contents(workspace), times(workspace)) == before
    assert len(jobs_of(runs, "retried")) == 2


def test_a_run_id_that_another_owner_has_is_refused_while_it_runs_and_after(runs: Runs, tmp_path: Path) -> None:
    workspace, inputs = runs.claim("owned"), runs.inputs("owned")
    barrier = tmp_path / "barrier"
    barrier.mkdir()
    request = train_request(runtime="fast", workspace="pvc://owned", **inputs.uris, env=script(barrier=str(barrier)))
    job = submit_or_adopt(Submission(runs.cluster, request, Identity("kfp", "nightly", "train"), "default")).trainjob
    with pytest.raises(RunFolderTaken, match=name_of(job)) as refused:
        runs.train("owned", "nightly", inputs, owner="airflow/dag")
    assert "pvc://owned/runs/nightly" in str(refused.value)
    (barrier / "let it go on").touch()
    runs.train("owned", "nightly", inputs, env=script(barrier=str(barrier)))
    before = contents(workspace)
    with pytest.raises(RunFolderTaken, match="kfp/nightly/train"):
        runs.train("owned", "nightly", inputs, owner="airflow/dag")
    assert contents(workspace) == before
    assert jobs_of(runs, "nightly") == [name_of(job)]


@pytest.mark.parametrize("runtime", ["fast", "fast-node"])
def test_prepared_files_that_somebody_changed_are_not_trained_on(runs: Runs, runtime: str) -> None:
    workspace, inputs = runs.claim(f"changed-{runtime}"), runs.inputs("changed")
    known = prepared(workspace, "run", inputs)
    damaged = workspace / "datasets" / known["dataset_digest"].removeprefix("sha256:") / "train.jsonl"
    os.chmod(damaged, 0o644)
    damaged.write_text("{}\n")
    uris = {} if runtime == "fast" else {"dataset_uri": "", "model_uri": ""}
    with pytest.raises(TrainJobFailed) as failed:
        runs.train(f"changed-{runtime}", "run", inputs, runtime=runtime, **known, **uris)
    told = str(failed.value)
    assert known["dataset_digest"] in told
    assert "train.jsonl has 3 bytes instead of" in told
    assert checkpoints(workspace, "run") == []


def test_other_prepared_data_under_the_digest_of_a_request_is_named_with_both_digests(runs: Runs) -> None:
    workspace = runs.claim("swapped")
    mine, other = (prepared(workspace, run, runs.inputs(run)) for run in ("mine", "other"))
    store = workspace / "datasets"
    place = store / mine["dataset_digest"].removeprefix("sha256:")
    place.rename(store / "aside")
    (store / other["dataset_digest"].removeprefix("sha256:")).rename(place)
    with pytest.raises(TrainJobFailed) as failed:
        runs.train("swapped", "mine", Inputs("", ""), runtime="fast-node", **mine)
    assert mine["dataset_digest"] in str(failed.value)
    assert other["dataset_digest"] in str(failed.value)
    assert checkpoints(workspace, "mine") == []


def test_an_export_of_a_job_that_did_not_write_the_output_is_refused(runs: Runs, tmp_path: Path) -> None:
    workspace, exports = runs.claim("exported"), str(StorageUri.from_path(tmp_path / "exports"))
    one, two = (name_of(runs.train("exported", run, runs.inputs(run))) for run in ("one", "two"))
    with pytest.raises(CheckpointError, match=f"written by: {one}"):
        export_run_checkpoint(workspace, exports, run_id="one", trainjob=two)
    assert not (tmp_path / "exports/one").exists()
    assert export_run_checkpoint(workspace, exports, run_id="one", trainjob=one).manifest.source == f"one/{one}"


def test_old_runs_and_what_they_alone_used_go_and_live_ones_stay(runs: Runs) -> None:
    workspace = runs.claim("pruned")
    known = {}
    for run in ("first", "second", "third"):
        known[run] = prepared(workspace, run, runs.inputs(run))
        runs.train("pruned", run, runs.inputs(run), **known[run])
        assert retire_run(runs.cluster, workspace, run_id=run, namespace="default") == []
    for run in ("live", "current"):
        known[run] = prepared(workspace, run, runs.inputs(run))
    waiting = train_request(runtime="fast", workspace="pvc://pruned", queue_name="q", **runs.inputs("live").uris, **known["live"])
    submit_or_adopt(Submission(runs.cluster, waiting, Identity("kfp", "live", "train"), "default"))
    runs.train("pruned", "current", runs.inputs("current"), **known["current"])

    deleted = retire_run(runs.cluster, workspace, run_id="current", namespace="default", retention="keep=1")
    assert sorted(deleted) == ["first", "second"], "one that has ended is kept besides the current one"
    assert sorted(path.name for path in (workspace / "runs").glob("[a-z]*")) == ["current", "live", "third"]
    record = read_run(workspace / "runs/current")
    assert record is not None
    assert record.ended
    assert len(list((workspace / "datasets").glob("[0-9a-f]*"))) == 5, "what was in use a moment ago stays"

    live = ["runs/live"]
    prune_runs(
        workspace, keep=1, current="runs/current", live=live, is_cluster_state_known=True, now=time.time() + 100, idle_seconds=50
    )
    for kind in ("dataset", "model"):
        left = {f"sha256:{path.name}" for path in (workspace / f"{kind}s").glob("[0-9a-f]*")}
        assert left == {known[run][f"{kind}_digest"] for run in ("live", "current", "third")}
    assert is_of(workspace / "runs/current/output/checkpoint-5", "current")


def test_an_evaluation_lies_in_the_folder_of_its_run_and_is_made_once(runs: Runs, tmp_path: Path) -> None:
    workspace, inputs = runs.claim("measured"), runs.inputs("measured")
    known = prepared(workspace, "run-7", inputs)
    runs.train("measured", "run-7", inputs, **known)
    exported = export_run_checkpoint(workspace, str(StorageUri.from_path(tmp_path / "exports")), run_id="run-7")

    def evaluated(owner: str = "kfp", clears: str = "0") -> dict[str, object]:
        job = EvaluationJob(runs.cluster, "default", "pvc://measured", submitter=Submitter("run", clears))
        request = EvaluateExport(checkpoint_uri=exported.uri, checkpoint_digest=exported.digest, runtime="fast-evaluation")
        return evaluate_export(job, request, StepRun(owner, "run-7"), HereSteps(workspace))

    result = evaluated()
    assert (result["dataset_digest"], result["checkpoint_digest"]) == (known["dataset_digest"], exported.digest)
    folder = workspace / "runs/run-7/evaluation" / exported.digest.removeprefix("sha256:")[:12]
    assert json.loads((folder / RESULT).read_bytes())["after"]["loss"] == pytest.approx(loss_after(19))
    assert (folder / SUMMARY).read_text("utf-8").startswith("## Run run\\-7")
    assert "<svg" in (folder / CURVE).read_text("utf-8")
    assert (result["summary"], result["loss_curve"]) == ((folder / SUMMARY).read_text(), (folder / CURVE).read_text())
    jobs = jobs_of(runs, "run-7")
    written = (folder / RESULT).stat().st_mtime_ns
    assert evaluated() == result
    assert (jobs_of(runs, "run-7"), (folder / RESULT).stat().st_mtime_ns) == (jobs, written)
    assert len(jobs) == 2
    with pytest.raises(RunFolderTaken, match="of kfp/run-7/evaluate-"):
        evaluated("somebody else")
    assert evaluated(clears="1")["after"] == result["after"]  # the step was cleared
    assert len(jobs_of(runs, "run-7")) == 3


def test_a_source_may_be_on_a_claim_also_on_that_of_the_workspace(runs: Runs) -> None:
    workspace, data = runs.claim("team"), runs.claim("data")
    old = runs.inputs("old")
    shutil.copy(StorageUri.parse(old.dataset).path, data / "rows of old.jsonl")
    shutil.copytree(StorageUri.parse(old.model).path, workspace / "models of old/base")
    sources = Inputs("pvc://data/rows of old.jsonl", "pvc://team/models of old/base")
    runs.train("team", "first", sources)
    (checkpoint,) = (workspace / "runs/first/output").glob("checkpoint-*")
    assert is_of(checkpoint, "old")
    assert list(data.iterdir()) == [data / "rows of old.jsonl"], "nothing is written to the claim of a source"
    receipts = {json.loads(path.read_text())["source"] for path in workspace.glob("*/*/.trainwright-receipt.json")}
    assert receipts == {sources.dataset, sources.model}
