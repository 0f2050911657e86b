"""What the page says of folders of exports, exports, runs and histories: in pages, with hostile texts, and with broken parts."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from factories import trainjob
from support.written_exports import write_export
from ui_calls import MakeCall

from trainwright.api import names
from trainwright.api.errors import Forbidden, NotFound
from trainwright.api.times import now as rfc3339_now
from trainwright.checkpoints.catalog import pin_export
from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.pointers import update_latest
from trainwright.checkpoints.promotion import Alias
from trainwright.checkpoints.registries.export_facts import ExportFacts
from trainwright.checkpoints.registries.model_card import export_card
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.storage.open import open_store
from trainwright.text.foreign_texts import one_line
from trainwright.ui.call import Call, Page
from trainwright.ui.models.endpoints import ModelEndpoints, show_workspaces
from trainwright.ui.models.places import SlowStore, StoreCalls
from trainwright.workspace import WorkspaceError, begin_run, end_run

HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def exports(tmp_path: Path, page: Page) -> Path:
    return tmp_path / "exports"


@pytest.fixture
def get(make_call: MakeCall) -> Callable[..., Any]:
    """`get("/exports", uri=...)` answers as JSON that has been sent."""
    endpoints = ModelEndpoints(StoreCalls(seconds=20))
    routes = {**{route.path: route.answer for route in endpoints.routes}, "/history": endpoints.show_history}

    def ask(path: str, **query: str) -> Any:
        return orjson.loads(orjson.dumps(routes[path](make_call(query=query))))

    return ask


def write_evaluation(workspace: Path, run: str, digest: str, after: dict[str, float], **more: Any) -> None:
    place = workspace / "runs" / run / "evaluation" / digest.removeprefix("sha256:")[:12]
    place.mkdir(parents=True)
    result = {"before": {"loss": 3.0}, "after": after, "held_out": True, "rows": 4, **more}
    (place / "result.json").write_text(json.dumps(result))


def test_a_folder_of_all_exports_lists_runs_and_aliases(get: Callable[..., Any], exports: Path) -> None:
    first, second = write_export(exports, "one"), write_export(exports, "two")
    root = f"file://{exports}"
    alias = Alias(root)
    alias.promote(f"{root}/one/checkpoint-5", evaluation={"loss": 2.0}, reason=HOSTILE)
    alias.promote(f"{root}/two/checkpoint-5", evaluation={"loss": 1.0})
    (exports / "challenger.json").write_text("{broken")
    found = get("/exports", uri=root)
    assert (found["kind"], [run["name"] for run in found["runs"]], found["next"]) == ("root", ["one", "two"], "")
    champion, challenger = found["aliases"]
    assert [(run["metrics"], run["evaluation"]) for run in found["runs"]] == [({}, None)] * 2
    assert champion["current"]["digest"] == second.digest
    assert [(entry["digest"], entry["evaluation"], entry["reason"]) for entry in champion["history"]] == [
        (first.digest, {"loss": 2.0}, HOSTILE)
    ]
    assert champion["canRollBack"]
    assert "not the record of an alias" in challenger["problem"]


def test_run_of_a_folder_has_the_metrics_of_its_latest_export(get: Callable[..., Any], exports: Path, workspace: Path) -> None:
    write_export(exports, "one", "checkpoint-5", metrics={"eval_loss": 9.0})
    latest = write_export(exports, "one", "checkpoint-10", metrics={"eval_loss": 1.5})
    update_latest(open_store(f"file://{exports}/one"), "checkpoint-10", latest)
    write_evaluation(workspace, "r1", latest.digest, {"loss": 1.25}, trained_rows=1)
    (run,) = get("/exports", uri=f"file://{exports}")["runs"]
    assert run["metrics"] == {"eval_loss": 1.5}
    of = "held-out loss (1 of 4 rows are also trained on)"
    assert run["evaluation"] == {"name": "loss", "before": 3.0, "after": 1.25, "of": of}
    newest, oldest = get("/exports", uri=f"file://{exports}/one")["exports"]
    assert (newest["evaluation"], oldest["evaluation"]) == (run["evaluation"], None)


def test_evaluation_of_another_export_is_not_shown(get: Callable[..., Any], exports: Path, workspace: Path) -> None:
    made = write_export(exports, "one", "checkpoint-5")
    write_evaluation(workspace, "r1", made.digest, {"loss": 1.25}, checkpoint_digest=f"{made.digest[:-1]}x")
    (row,) = get("/exports", uri=f"file://{exports}/one")["exports"]
    assert row["evaluation"] is None


def test_unreadable_manifest_of_the_latest_export_is_a_problem_of_its_run(get: Callable[..., Any], exports: Path) -> None:
    for name in ("one", "two"):
        made = write_export(exports, name, "checkpoint-5", metrics={"eval_loss": 1.5})
        update_latest(open_store(f"file://{exports}/{name}"), "checkpoint-5", made)
    (exports / "one" / "checkpoint-5" / "manifest.json").write_text("[]")
    broken, whole = get("/exports", uri=f"file://{exports}")["runs"]
    assert "not a valid manifest" in broken["problem"]
    assert (whole["problem"], whole["metrics"]) == ("", {"eval_loss": 1.5})


def test_one_unreadable_manifest_does_not_hide_the_others(get: Callable[..., Any], exports: Path) -> None:
    write_export(exports, "run", "checkpoint-5", metrics={"eval_loss": 1.5})
    write_export(exports, "run", "checkpoint-10")
    (exports / "run" / "checkpoint-10" / "manifest.json").write_text("[]")
    (exports / "run" / "checkpoint-20").mkdir()
    pin_export(open_store(f"file://{exports}/run"), "checkpoint-5", "registered in mlflow://model")
    rows = get("/exports", uri=f"file://{exports}/run")["exports"]
    assert [row["name"] for row in rows] == ["checkpoint-20", "checkpoint-10", "checkpoint-5"]
    assert "contains no export" in rows[0]["problem"]
    assert "not a valid manifest" in rows[1]["problem"]
    assert (rows[2]["metrics"], rows[2]["registered"]) == ({"eval_loss": 1.5}, ["mlflow://model"])


def test_broken_pins_are_a_problem_of_the_folder_only(get: Callable[..., Any], exports: Path) -> None:
    write_export(exports, "run")
    (exports / "run" / "pins.json").write_text("[")
    found = get("/exports", uri=f"file://{exports}/run")
    assert "pins.json is not valid" in found["problem"]
    assert found["exports"][0]["problem"] == ""


@pytest.mark.medium
def test_exports_are_paged_newest_first(get: Callable[..., Any], exports: Path) -> None:
    for step in range(1, 121):
        write_export(exports, "run", f"checkpoint-{step}")
    steps, after = [], ""
    while True:
        found = get("/exports", uri=f"file://{exports}/run", after=after)
        assert found["total"] == 120
        steps += [row["step"] for row in found["exports"]]
        after = found["next"]
        if not after:
            break
    assert steps == list(range(120, 0, -1))


def test_an_empty_or_missing_folder_is_empty(get: Callable[..., Any], exports: Path) -> None:
    assert get("/exports", uri=f"file://{exports}")["runs"] == []
    assert get("/exports", uri=f"file://{exports}/none")["runs"] == []


def test_an_export_shows_lineage_protection_and_what_supersedes_it(
    get: Callable[..., Any], exports: Path, workspace: Path, cluster: EmbeddedCluster
) -> None:
    origin = {"dataset": DIGEST, "trainer": "sft"}
    old = write_export(exports, "run", metadata={"origin": origin, "owner": HOSTILE, "x": {"y": math.pi, "z": [1, {"w": None}]}})
    new = write_export(exports, "run", "checkpoint-5.1", supersedes=old.digest, resumable=False)
    root = f"file://{exports}"
    Alias(root, "production").promote(f"{root}/run/checkpoint-5")
    receipt = {"kind": "dataset", "source": "hf://datasets/org/name", "revision": "abc", "files": [], "details": {"rows": 100}}
    folder = workspace / "datasets" / ("d" * 64)
    folder.mkdir(parents=True)
    (folder / ".trainwright-receipt.json").write_text(json.dumps(receipt))
    cluster.create(trainjob("run-job"))
    found = get("/export", uri=f"{root}/run/checkpoint-5")
    assert found["digest"] == old.digest
    assert found["origin"] == origin
    assert found["prepared"]["dataset"]["source"] == "hf://datasets/org/name"
    assert found["prepared"]["dataset"]["details"] == {"rows": 100}
    assert (found["owner"], found["metadata"]["x"]["z"]) == (HOSTILE, [1, {"w": None}])
    assert found["job"]["name"] == "run-job"
    assert found["aliases"] == ["production"]
    assert [(each["name"], each["current"] is None) for each in found["named"]] == [
        ("champion", True),
        ("challenger", True),
        ("production", False),
    ]
    assert found["protectedBy"] == ["production"]
    assert [other["digest"] for other in found["supersededBy"]] == [new.digest]
    assert (found["root"], found["folder"], found["mayPromote"]) == (root, f"{root}/run", True)


def test_a_card_is_written_and_a_readme_checked(get: Callable[..., Any], exports: Path) -> None:
    write_export(exports, "run", files={"README.md": b"# Mine", "adapter_config.json": b'{"task_type": "CAUSAL_LM"}'})
    uri = f"file://{exports}/run/checkpoint-5"
    found = get("/export/card", uri=uri)
    assert "# run, step 5" in found["card"].replace("\\", "")
    assert found["readme"] == "# Mine"
    (exports / "run" / "checkpoint-5" / "a" / "README.md").write_text("changed")
    assert "corrupt" in get("/export/card", uri=uri)["readmeProblem"]


def test_readme_that_the_export_has_written_is_not_shown_beside_the_card(get: Callable[..., Any], exports: Path) -> None:
    own = export_card(ExportFacts("", "", 5, "hf-trainer", "", run="run"))
    write_export(exports, "run", files={"README.md": own.encode(), "adapter_config.json": b"{}"})
    found = get("/export/card", uri=f"file://{exports}/run/checkpoint-5")
    assert (found["readme"], found["readmeProblem"]) == ("", "")
    assert "step 5" in found["card"]


def test_a_corrupt_configuration_is_a_problem_of_the_card(get: Callable[..., Any], exports: Path) -> None:
    write_export(exports, "run", files={"config.json": b"{}"})
    (exports / "run" / "checkpoint-5" / "a" / "config.json").write_text("{ }")
    assert "corrupt" in get("/export/card", uri=f"file://{exports}/run/checkpoint-5")["problem"]


@pytest.mark.medium
def test_files_are_paged(get: Callable[..., Any], exports: Path) -> None:
    write_export(exports, "run", files={f"shard-{number:04}": b"" for number in range(700)})
    uri = f"file://{exports}/run/checkpoint-5"
    assert (len(get("/export/files", uri=uri)["files"]), get("/export/files", uri=uri)["total"]) == (500, 701)
    assert len(get("/export/files", uri=uri, offset="500")["files"]) == 201
    with pytest.raises(ValueError, match="whole number"):
        get("/export/files", uri=uri, offset="-1")


def test_a_diff_names_data_settings_metrics_and_files(get: Callable[..., Any], exports: Path) -> None:
    write_export(
        exports, "one", metrics={"loss": 2.0}, files={"adapter_config.json": b'{"r": 8}'}, metadata={"origin": {"dataset": "a"}}
    )
    write_export(
        exports, "two", metrics={"loss": 1.0}, files={"adapter_config.json": b'{"r": 16}'}, metadata={"origin": {"dataset": "b"}}
    )
    root = f"file://{exports}"
    found = get("/export/diff", one=f"{root}/one/checkpoint-5", other=f"{root}/two/checkpoint-5")
    assert found["data"] == {"dataset": ["a", "b"]}
    assert found["settings"] == {"adapter_config.json: r": [8, 16]}
    assert found["metrics"] == {"loss": [2.0, 1.0]}
    assert found["files"]["changed"] == ["adapter_config.json"]
    assert found["counts"] == {"changed": 1, "added": 0, "removed": 0, "unchanged": 1}
    assert "source" in found["recorded"]


def test_exports_elsewhere_are_not_read(get: Callable[..., Any], tmp_path: Path, exports: Path) -> None:
    write_export(tmp_path / "elsewhere", "run")
    write_export(exports.parent, exports.name, "checkpoint-5")
    for path in ("/exports", "/export", "/export/files", "/export/card"):
        with pytest.raises(Forbidden):
            get(path, uri=f"file://{tmp_path}/elsewhere/run/checkpoint-5")
    with pytest.raises(Forbidden):
        get("/export/diff", one=f"file://{exports}/checkpoint-5", other=f"file://{tmp_path}/elsewhere/run/checkpoint-5")
    with pytest.raises(NoCheckpoint):
        get("/export", uri=f"file://{exports}/run/checkpoint-5")


def test_a_slow_store_is_said_in_time(make_call: MakeCall, exports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("trainwright.storage.file_store.FileStore.list_folder", lambda _self, _limit: release.wait(30))
    endpoints = ModelEndpoints(StoreCalls(seconds=0.1))
    with pytest.raises(SlowStore, match="has not answered"):
        endpoints.show_exports(make_call(query={"uri": f"file://{exports}"}))
    release.set()


def test_runs_are_listed_newest_first_and_broken_ones_too(get: Callable[..., Any], workspace: Path, make_call: MakeCall) -> None:
    times = iter(f"2026-01-01T00:00:{second:02}Z" for second in range(60))
    for name in ("old", "new"):
        begin_run(workspace, f"runs/{name}", run=name, owner=HOSTILE, now=lambda: next(times), dataset=DIGEST)
    end_run(workspace, "runs/old", exported="s3://bucket/exports/old/checkpoint-5", now=lambda: "2026-01-01T00:00:01Z")
    (workspace / "runs" / "broken").mkdir()
    (workspace / "runs" / "broken" / "run.json").write_text("{")
    (workspace / "runs" / "linked").symlink_to("old")
    (id_,) = [each["id"] for each in show_workspaces(make_call())["workspaces"]]
    rows = get("/runs", workspace=id_)["runs"]
    assert [(row["name"], row["state"]) for row in rows] == [("new", "given up"), ("old", "ended"), ("broken", "unknown")]
    assert [row["reason"] for row in rows[1:]] == ["exported; its TrainJobs were deleted", ""]
    assert rows[0]["owner"] == HOSTILE
    sources = get("/export-folders")["sources"]
    assert {"uri": "s3://bucket/exports", "origin": "run", "of": "old"} in sources


def test_runs_have_the_state_and_the_name_of_their_jobs(
    get: Callable[..., Any], workspace: Path, cluster: EmbeddedCluster
) -> None:
    uid = "0a1b2c3d-0000-4000-8000-000000000000"
    for name, owner, labels in (
        ("trains", "kfp", {names.PIPELINE_LABEL: "finetune", names.PIPELINE_RUN_LABEL: uid}),
        ("failed", "kfp", {}),
        ("nightly", "airflow/nightly", {}),
    ):
        begin_run(workspace, f"runs/{name}", run=f"nightly/{name}" if owner != "kfp" else name, owner=owner)
        noted = {names.RUN_FOLDER_ANNOTATION: f"pvc://data/runs/{name}", names.OWNER_ANNOTATION: f"{owner}/{name}/train"}
        if name != "nightly":
            made = cluster.create(trainjob(name, metadata={"annotations": noted, "labels": labels}))
    ended = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": HOSTILE, "lastTransitionTime": rfc3339_now()}
    cluster.update_status({**made, "status": {"conditions": [ended]}})
    rows = {row["name"]: row for row in get("/runs", workspace="0:default/data")["runs"]}
    assert [rows[name]["state"] for name in ("trains", "failed", "nightly")] == ["in progress", "failed", "in progress"]
    assert rows["trains"]["reason"] == "TrainJob trains is starting"
    assert rows["failed"]["reason"] == f"TrainJob failed failed: FailedJobs: {one_line(HOSTILE)}"
    assert [(rows[name]["creator"]["name"], rows[name]["creator"]["run"]) for name in rows] == [
        {"trains": ("finetune", uid), "failed": ("pipeline", "failed"), "nightly": ("nightly", "nightly")}[name] for name in rows
    ]
    page = get("/run", workspace="0:default/data", run="failed")
    assert (page["state"], page["reason"]) == ("failed", rows["failed"]["reason"])
    elsewhere = get("/runs", workspace="0:default/data", namespace="other")["runs"]
    assert {row["state"] for row in elsewhere} == {"unknown"}, "TrainJobs beside the claim are not listed"


def test_job_on_a_claim_without_a_known_workspace_belongs_to_the_run_of_its_id(
    get: Callable[..., Any], workspace: Path, cluster: EmbeddedCluster
) -> None:
    begin_run(workspace, "runs/r1", run="r1", owner="kfp")
    for name, owner in (("foreign", "airflow/other/r1/train"), ("own", "kfp/r1/train")):
        noted = {names.RUN_FOLDER_ANNOTATION: "pvc://elsewhere/runs/r1", names.OWNER_ANNOTATION: owner}
        cluster.create(trainjob(name, metadata={"annotations": noted, "labels": {names.RUN_LABEL: "r1"}}))
    (row,) = get("/runs", workspace="0:default/data")["runs"]
    assert row["reason"] == "TrainJob own is starting"


def test_jobs_of_a_user_who_may_not_list_them_are_unknown(make_call: MakeCall, workspace: Path) -> None:
    class Denied:
        def list(self, *_arguments: Any, **_options: Any) -> Any:
            raise Forbidden("not you")

    begin_run(workspace, "runs/r1", run="r1", owner="kfp")
    (row,) = ModelEndpoints().show_runs(make_call(of_cluster=Denied(), query={"workspace": "0:default/data"}))["runs"]
    assert (row["state"], row["reason"]) == ("unknown", "nothing was exported; TrainJobs cannot be listed")


@pytest.mark.medium
def test_runs_are_paged_without_gaps(get: Callable[..., Any], workspace: Path) -> None:
    for number in range(120):
        begin_run(workspace, f"runs/r{number}", run=f"r{number}", owner="", now=lambda: "2026-01-01T00:00:00Z")
    seen, after = [], ""
    while True:
        found = get("/runs", workspace="0:default/data", after=after)
        seen += [row["name"] for row in found["runs"]]
        after = found["next"]
        if not after:
            break
    assert sorted(seen) == sorted(f"r{number}" for number in range(120))
    assert len(seen) == 120


def test_workspaces_that_were_not_found_have_no_runs(get: Callable[..., Any], workspace: Path) -> None:
    for name in ("0:", "0:../..", "1:", "", "0:default", "/etc"):
        with pytest.raises(NotFound):
            get("/runs", workspace=name)


def test_a_page_in_a_cluster_reads_no_workspaces(make_call: MakeCall, page: Page, workspace: Path) -> None:
    in_cluster = Page(workspaces=page.workspaces)
    assert show_workspaces(make_call(of_page=in_cluster)) == {"workspaces": []}
    with pytest.raises(NotFound):
        ModelEndpoints().show_runs(make_call(of_page=in_cluster, query={"workspace": "0:default/data"}))


def test_a_run_shows_trainings_evaluations_and_reports(get: Callable[..., Any], workspace: Path) -> None:
    begin_run(workspace, "runs/r1", run="r1", owner="kfp", dataset=DIGEST)
    run = workspace / "runs" / "r1"
    for folder in (run / "output", run / "train-0a1b2c3d" / "output"):
        (folder / "checkpoint-5").mkdir(parents=True)
    (run / "output" / "checkpoint-10").symlink_to("/etc")
    (run / "dataset-report.md").write_text("# Data")
    (run / "dataset-report.html").write_text("<script>alert(1)</script>")
    finding = {"severity": "warning", "name": "never_stops", "text": HOSTILE}
    (run / "dataset-report.json").write_text(json.dumps({"findings": [finding, {**finding, "severity": "note"}, 7]}))
    result = {
        "before": {"loss": 3.0},
        "after": {"loss": math.nan, "x": 1.0},
        "held_out": True,
        "rows": 5,
        "trained_rows": 5,
        "samples": {"count": 2, "before": {"ended": 0, "tokens": 96}, "after": []},
        "sample": {"prompt": HOSTILE},
    }
    for name, text in (("0123456789ab", json.dumps(result)), ("ba9876543210", "[]")):
        (run / "evaluation" / name).mkdir(parents=True)
        (run / "evaluation" / name / "result.json").write_text(text)
    os.utime(run / "evaluation" / "ba9876543210" / "result.json", (1, 1))  # the newest evaluation comes first
    found = get("/run", workspace="0:default/data", run="r1")
    assert [(each["folder"], each["checkpoints"]) for each in found["trainings"]] == [
        ("runs/r1", ["checkpoint-5"]),
        ("runs/r1/train-0a1b2c3d", ["checkpoint-5"]),
    ]
    good, bad = found["evaluations"]
    assert good["loss"] == {"name": "loss", "before": 3.0, "after": None}
    assert good["sample"] == {"prompt": HOSTILE}
    assert (good["of"], good["samples"]) == (
        "held-out loss (5 of 5 rows are also trained on)",
        ["0 of 2 ended (48 tokens each)", ""],
    )
    assert found["evaluation"] == good, "the newest valid one is in the row"
    assert found["findings"] == [f"warning: {one_line(HOSTILE)}"]
    assert bad["problem"] == "it has no valid result"
    assert (found["reports"], found["files"]) == (
        ["dataset-report.md"],
        ["dataset-report.json", "dataset-report.md", "run.json"],
    )
    assert found["prepared"]["dataset"]["source"] == ""
    with pytest.raises(NotFound):
        get("/run", workspace="0:default/data", run="none")


def test_the_history_of_a_job_comes_from_its_runs_folder(
    get: Callable[..., Any], workspace: Path, cluster: EmbeddedCluster
) -> None:
    run = workspace / "runs" / "r1"
    (run / "output" / "checkpoint-20").mkdir(parents=True)
    history = [{"step": 10, "loss": 3.0}, {"step": 20, "loss": math.nan, "grad_norm": 1e300}]
    (run / "output" / "checkpoint-20" / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    cluster.create(trainjob("demo", metadata={"annotations": {names.RUN_FOLDER_ANNOTATION: "pvc://data/runs/r1"}}))
    found = get("/history", namespace="default", name="demo")
    assert found["series"] == {"loss": [[10, 3.0], [20, None]], "grad_norm": [[20, 1e300]]}
    assert (found["axis"], found["source"], found["run"]) == ("step", "trainer_state.json", "r1")
    lines = [json.dumps({"step": step, "loss": 1.0}) for step in range(1, 6)]
    (run / "metrics.jsonl").write_text("\n".join([*lines, "{broken", '{"loss": 1}']))
    found = get("/history", namespace="default", name="demo")
    assert (found["source"], len(found["series"]["loss"])) == ("metrics.jsonl", 5)
    assert get("/job-run", namespace="default", name="demo")["run"] == "r1"


def test_reports_without_steps_are_counted_as_reports(get: Callable[..., Any], workspace: Path) -> None:
    (workspace / "runs" / "r1").mkdir()
    (workspace / "runs" / "r1" / "metrics.jsonl").write_text('{"report": 1, "accuracy": 0.5}\n')
    found = get("/history", workspace="0:default/data", folder="runs/r1")
    assert (found["axis"], found["series"]) == ("report", {"accuracy": [[1, 0.5]]})


def test_a_job_without_a_known_folder_has_no_history(get: Callable[..., Any], cluster: EmbeddedCluster, workspace: Path) -> None:
    (workspace / "runs" / "r1").mkdir()
    for name, folder in (
        ("none", ""),
        ("other", "pvc://other/runs/r1"),
        ("odd", "file:///etc/runs/r1"),
        ("up", "pvc://data/runs/.."),
    ):
        cluster.create(trainjob(name, metadata={"annotations": {names.RUN_FOLDER_ANNOTATION: folder}}))
        found = get("/history", namespace="default", name=name)
        assert (found["series"], len(found["notes"])) == ({}, 1)


@pytest.mark.parametrize("folder", ["runs/..", "../runs/r1", "runs/r1/../../x", "", "runs/linked"])
def test_histories_are_read_inside_the_runs_only(get: Callable[..., Any], workspace: Path, folder: str) -> None:
    (workspace / "runs" / "linked").symlink_to("/etc")
    with pytest.raises(WorkspaceError):
        get("/history", workspace="0:default/data", folder=folder)


def test_exports_that_jobs_name_are_offered_if_they_may_be_read(
    get: Callable[..., Any], cluster: EmbeddedCluster, exports: Path, make_call: MakeCall
) -> None:
    uris = (
        "s3://bucket/models/run/checkpoint-5",
        "file:///etc/run/checkpoint-5",
        f"file://{exports}/run/checkpoint-1",
        "hf://org/name",
    )
    for number, uri in enumerate(uris):
        env = [
            {"name": names.RESUME_EXPORT_VARIABLE, "value": uri},
            {"name": "MLFLOW_TRACKING_URI", "value": "http://me:pw@mlflow/?t=1"},
        ]
        cluster.create(trainjob(f"job-{number}", trainer={"env": env}))
    found = get("/export-folders")
    assert [(each["uri"], each["origin"]) for each in found["sources"]] == [
        (f"file://{exports}", "given"),
        ("s3://bucket/models", "job"),
    ]
    shown = ModelEndpoints().show_job_run(make_call(query={"name": "job-0"}))
    assert shown["exports"] == [uris[0]]
    assert shown["links"] == [{"tool": "MLflow", "title": "tracking server", "url": "http://mlflow", "command": ""}]


def test_a_user_without_access_to_jobs_still_gets_the_given_exports(make_call: MakeCall, exports: Path) -> None:
    class Denied:
        def list(self, *_arguments: Any, **_options: Any) -> Any:
            raise Forbidden("not you")

    call: Call = make_call(of_cluster=Denied())
    found = ModelEndpoints().show_sources(call)
    assert [each["origin"] for each in found["sources"]] == ["given"]
    assert "not you" in found["problems"][0]
