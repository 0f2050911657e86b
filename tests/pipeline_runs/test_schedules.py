"""`trainwright schedule kfp`: created once, replaced when it differs, and never none, whatever interrupts a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pipeline_commands import Run
from servers.kfp_api_server import Fault, KfpApiServer

from trainwright.pipeline_runs.errors import BadSchedule
from trainwright.pipeline_runs.schedule import cron_of_six_fields

pytestmark = pytest.mark.medium
CRON = "0 0 3 * * *"


@pytest.fixture
def schedule(run: Run, kfp: KfpApiServer, tiny_yaml: str) -> Any:
    """Call the command for the tiny pipeline; returns its outcome."""

    def call(*arguments: str, code: int = 0, cron: str = CRON, name: str = "nightly") -> dict[str, Any]:
        words = ["schedule", "kfp", tiny_yaml, "--name", name, "--cron", cron, "--host", kfp.url, "-o", "json", *arguments]
        result = run(*words)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if code == 0 else {"error": result.stderr}

    return call


def the_only(kfp: KfpApiServer) -> dict[str, Any]:
    [one] = kfp.recurring_runs.values()
    return one


def test_a_schedule_has_no_catch_up_no_cache_and_one_run_at_a_time(kfp: KfpApiServer, schedule: Any) -> None:
    outcome = schedule("--param", "a=3", "--param", 'words=["x"]', "--experiment", "training", "--service-account", "runner")
    one = the_only(kfp)
    assert outcome["action"] == "created"
    assert outcome["recurring_run_id"] == one["recurring_run_id"]
    assert (one["no_catchup"], one["max_concurrency"], one["mode"]) == (True, "1", "ENABLE")
    assert one["trigger"] == {"cron_schedule": {"cron": CRON}}
    assert one["runtime_config"]["parameters"] == {"a": 3, "words": ["x"]}
    assert one["service_account"] == "runner"
    assert kfp.experiments[one["experiment_id"]]["display_name"] == "training"
    version = kfp.versions[one["pipeline_version_reference"]["pipeline_version_id"]]
    assert version["display_name"] == outcome["version_name"]
    tasks = [
        task
        for component in (version["pipeline_spec"]["root"], *version["pipeline_spec"]["components"].values())
        for task in component.get("dag", {}).get("tasks", {}).values()
    ]
    assert len(tasks) == 4  # one of them inside the condition, which kfp itself leaves cached
    assert all(task["cachingOptions"] == {"enableCache": False} for task in tasks)


def test_the_same_call_again_changes_nothing(kfp: KfpApiServer, schedule: Any) -> None:
    first = schedule("--param", "a=3")
    before = json.dumps([kfp.recurring_runs, kfp.versions, kfp.pipelines, kfp.experiments])
    kfp.requests.clear()
    second = schedule("--param", "a=3")
    assert (second["action"], second["recurring_run_id"]) == ("unchanged", first["recurring_run_id"])
    assert json.dumps([kfp.recurring_runs, kfp.versions, kfp.pipelines, kfp.experiments]) == before
    assert {method for method, _, _ in kfp.requests} == {"GET"}


@pytest.mark.parametrize(
    "changed",
    [
        {"arguments": ("--param", "a=4")},
        {"cron": "0 0 4 * * *"},
        {"arguments": ("--experiment", "other")},
        {"arguments": ("--service-account", "other")},
    ],
    ids=["parameters", "cron", "experiment", "service account"],
)
def test_other_content_replaces_it(kfp: KfpApiServer, schedule: Any, changed: dict[str, Any]) -> None:
    first = schedule("--param", "a=3")
    arguments = changed.pop("arguments", ("--param", "a=3"))
    if "--param" not in arguments:
        arguments = ("--param", "a=3", *arguments)
    second = schedule(*arguments, **changed)
    assert (second["action"], second["removed"]) == ("replaced", [first["recurring_run_id"]])
    assert the_only(kfp)["recurring_run_id"] == second["recurring_run_id"] != first["recurring_run_id"]


def test_another_pipeline_is_another_version_of_it(
    kfp: KfpApiServer, schedule: Any, run: Run, tiny_source: Path, tmp_path: Path
) -> None:
    schedule("--param", "a=3")
    other = tmp_path / "tiny_pipeline.py"
    other.write_text(tiny_source.read_text("utf-8").replace("return a + b", "return a - b"), "utf-8")
    result = run("schedule", "kfp", str(other), "--name", "nightly", "--cron", CRON, "--host", kfp.url, "--param", "a=3")
    assert result.exit_code == 0, result.output
    assert "schedule nightly: replaced" in result.stdout
    assert len(kfp.pipelines) == 1
    assert len(kfp.versions) == 2
    assert len(kfp.recurring_runs) == 1


def run_of(kfp: KfpApiServer, schedule_id: str, name: str, state: str) -> None:
    """A run that the schedule has started."""
    one = {key: kfp.recurring_runs[schedule_id][key] for key in ("experiment_id", "pipeline_version_reference")}
    kfp.runs[name] = one | {"run_id": name, "recurring_run_id": schedule_id, "state": state, "created_at": kfp.now()}


def test_a_replaced_schedule_is_deleted_after_its_runs(kfp: KfpApiServer, schedule: Any) -> None:
    """With it the server deletes their workflows, and so their TrainJobs."""
    first = schedule("--param", "a=3")["recurring_run_id"]
    run_of(kfp, first, "ended", "FAILED")
    run_of(kfp, first, "running", "RUNNING")
    second = schedule("--param", "a=4")
    assert (second["action"], second["removed"], second["runs_in_progress"]) == ("replaced", [], ["running"])
    assert [each["mode"] for each in kfp.recurring_runs.values()] == ["DISABLE", "ENABLE"]
    assert schedule("--param", "a=4")["runs_in_progress"] == ["running"]
    assert kfp.deleted_workflows == []
    kfp.runs["running"]["state"] = "SUCCEEDED"
    assert schedule("--param", "a=4")["removed"] == [first]


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "CANCELING", "PAUSED", ""])
def test_delete_leaves_runs_in_progress_alone(kfp: KfpApiServer, schedule: Any, run: Run, state: str) -> None:
    first = schedule("--param", "a=3")["recurring_run_id"]
    run_of(kfp, first, "r", state)
    words = ("schedule", "kfp", "--name", "nightly", "--delete", "--host", kfp.url)
    result = run(*words)
    assert (result.exit_code, kfp.deleted_workflows, the_only(kfp)["mode"]) == (0, [], "DISABLE")
    assert result.stdout.splitlines()[0] == "schedule nightly: disabled"
    assert "in progress (r)" in result.stdout
    kfp.runs["r"]["state"] = "FAILED"
    assert run(*words).stdout == "schedule nightly: deleted\n"
    assert kfp.recurring_runs == {}


def test_a_run_that_starts_while_its_schedule_is_deleted_keeps_its_workflow(kfp: KfpApiServer, schedule: Any, run: Run) -> None:
    """On servers that know the option."""
    kfp.honours_orphan = True
    first = schedule("--param", "a=3")["recurring_run_id"]
    listed = kfp._list

    def list_before_a_run_starts(attribute: str, *arguments: Any) -> dict[str, Any]:
        answer = listed(attribute, *arguments)
        if attribute == "runs":
            run_of(kfp, first, "late", "RUNNING")
        return answer

    kfp._list = list_before_a_run_starts  # type: ignore[method-assign]
    result = run("schedule", "kfp", "--name", "nightly", "--delete", "--host", kfp.url)
    assert (result.exit_code, kfp.recurring_runs, kfp.deleted_workflows) == (0, {}, [])


def test_a_schedule_is_disabled_and_enabled_in_place(kfp: KfpApiServer, schedule: Any) -> None:
    first = schedule("--param", "a=3", "--disable")
    assert the_only(kfp)["mode"] == "DISABLE"
    assert schedule("--param", "a=3", "--disable")["action"] == "unchanged"
    assert schedule("--param", "a=3")["action"] == "enabled"
    assert schedule("--param", "a=3", "--disable")["action"] == "disabled"
    assert (the_only(kfp)["mode"], the_only(kfp)["recurring_run_id"]) == ("DISABLE", first["recurring_run_id"])


def test_a_schedule_whose_version_was_deleted_is_replaced(kfp: KfpApiServer, schedule: Any) -> None:
    schedule("--param", "a=3")
    kfp.versions.clear()
    assert schedule("--param", "a=3")["action"] == "replaced"
    assert the_only(kfp)["pipeline_version_reference"]["pipeline_version_id"] in kfp.versions


@pytest.mark.parametrize("same_second", [False, True])
def test_a_crash_between_create_and_delete_leaves_a_duplicate_that_the_next_call_removes(
    kfp: KfpApiServer, schedule: Any, same_second: bool
) -> None:
    first = schedule("--param", "a=3")
    kfp.seconds_per_object = 0 if same_second else 1
    fault = Fault(403, path=rf"recurringruns/{first['recurring_run_id']}")
    kfp.faults.append(fault)
    assert "not permitted (403)" in schedule("--param", "a=4", code=4)["error"]
    assert len(kfp.recurring_runs) == 2
    fault.times = 0
    repaired = schedule("--param", "a=4")
    assert the_only(kfp)["runtime_config"]["parameters"] == {"a": 4}
    assert the_only(kfp)["recurring_run_id"] == repaired["recurring_run_id"]
    if not same_second:
        assert (repaired["action"], repaired["removed"]) == ("unchanged", [first["recurring_run_id"]])
    assert schedule("--param", "a=4")["action"] == "unchanged"


def test_after_a_crash_the_old_content_can_be_set_again(kfp: KfpApiServer, schedule: Any) -> None:
    """The newest of a name is the schedule: the older one with that content is not taken for it."""
    first = schedule("--param", "a=3")
    fault = Fault(403, path=rf"recurringruns/{first['recurring_run_id']}")
    kfp.faults.append(fault)
    schedule("--param", "a=4", code=4)
    fault.times = 0
    assert schedule("--param", "a=3")["action"] == "replaced"
    assert the_only(kfp)["runtime_config"]["parameters"] == {"a": 3}


@pytest.mark.parametrize("path", ["pipelines$", "upload_version", "experiments$", "recurringruns$"])
@pytest.mark.parametrize("kind", ["drop-after", "drop-before", 500, 503])
def test_a_create_without_an_answer_is_completed(kfp: KfpApiServer, schedule: Any, path: str, kind: int | str) -> None:
    kfp.faults.append(Fault(kind, times=1, method="POST", path=path))
    outcome = schedule("--param", "a=3")
    assert (outcome["action"], outcome["removed"]) == ("created", [])
    assert [len(kind) for kind in (kfp.pipelines, kfp.versions, kfp.experiments, kfp.recurring_runs)] == [1, 1, 1, 1]


@pytest.mark.parametrize("path", ["pipelines$", "upload_version", "experiments$"])
def test_objects_created_concurrently_by_another_client_are_used(kfp: KfpApiServer, schedule: Any, path: str) -> None:
    kfp.faults.append(Fault("taken", times=1, method="POST", path=path))
    assert schedule("--param", "a=3")["action"] == "created"
    assert [len(kind) for kind in (kfp.pipelines, kfp.versions, kfp.experiments)] == [1, 1, 1]


def test_of_two_calls_at_the_same_time_the_later_one_stays(kfp: KfpApiServer, schedule: Any) -> None:
    """The other call creates its own between this one's look and its create, as if it had the same idea."""
    first = schedule("--param", "a=3")
    other = {**the_only(kfp), "runtime_config": {"parameters": {"a": 5}}, "description": the_only(kfp)["description"][:-1] + "_"}
    other.pop("recurring_run_id")
    create = kfp._create_recurring_run

    def create_after_another(body: dict[str, Any]) -> dict[str, Any]:
        created = create(body)
        kfp.add_recurring_run(**{**other, "created_at": kfp.now()})
        return created

    kfp._create_recurring_run = create_after_another  # type: ignore[method-assign]
    second = schedule("--param", "a=4")
    assert second["removed"] == [first["recurring_run_id"]]
    assert sorted(each["runtime_config"]["parameters"]["a"] for each in kfp.recurring_runs.values()) == [4, 5]
    kfp._create_recurring_run = create  # type: ignore[method-assign]
    schedule("--param", "a=4")
    assert the_only(kfp)["runtime_config"]["parameters"] == {"a": 4}


def test_the_name_is_found_on_the_third_page(kfp: KfpApiServer, schedule: Any) -> None:
    """A server that ignores the filter, and whose pages are small: what it returns is compared by name."""
    kfp.largest_page = 2
    for number in range(5):
        kfp.add_recurring_run(display_name=f"other-{number}", description="of others")
    first = schedule("--param", "a=3")
    original = kfp._list

    def unfiltered(name: str, model: str, kind: dict[str, Any], query: dict[str, str], **fields: str) -> dict[str, Any]:
        return original(name, model, kind, {**query, "filter": ""} if name == "recurring_runs" else query, **fields)

    kfp._list = unfiltered  # type: ignore[method-assign]
    kfp.requests.clear()
    assert schedule("--param", "a=3")["recurring_run_id"] == first["recurring_run_id"]
    pages = kfp.calls("GET", "recurringruns$")
    assert len(pages) == 3
    assert [bool(query["page_token"]) for _, _, query in pages] == [False, True, True]
    assert schedule("--param", "a=4")["removed"] == [first["recurring_run_id"]]
    assert len(kfp.recurring_runs) == 6


def test_many_of_one_name_are_found_on_all_pages(kfp: KfpApiServer, schedule: Any) -> None:
    kfp.largest_page = 2
    schedule("--param", "a=3")
    mine = the_only(kfp)
    for _ in range(5):
        kfp.add_recurring_run(**{key: value for key, value in mine.items() if key not in ("recurring_run_id", "created_at")})
    outcome = schedule("--param", "a=3")
    assert (outcome["action"], len(outcome["removed"])) == ("unchanged", 5)
    assert the_only(kfp)["recurring_run_id"] == outcome["recurring_run_id"] != mine["recurring_run_id"]


def test_a_list_without_end_is_an_error(kfp: KfpApiServer, schedule: Any) -> None:
    kfp._list = lambda *_, **__: {"next_page_token": "again"}  # type: ignore[method-assign]
    assert "does not end" in schedule("--param", "a=3", code=3)["error"]


def test_a_list_under_another_key_is_no_empty_list(kfp: KfpApiServer, schedule: Any) -> None:
    """Taken for empty, each call would create one more schedule."""
    kfp._list = lambda *_, **__: {"total_size": 1}  # type: ignore[method-assign]
    assert "the list of recurring runs has no objects that can be read" in schedule("--param", "a=3", code=3)["error"]


def test_recurring_runs_of_others_are_left_alone(kfp: KfpApiServer, schedule: Any, run: Run) -> None:
    foreign = kfp.add_recurring_run(display_name="nightly", description="made in the interface")
    assert foreign["recurring_run_id"] in schedule("--param", "a=3", code=2)["error"]
    deleted = run("schedule", "kfp", "--name", "nightly", "--delete", "--host", kfp.url)
    assert (deleted.exit_code, the_only(kfp)) == (2, foreign)


def test_delete_removes_it_and_fails_if_there_is_none(kfp: KfpApiServer, schedule: Any, run: Run) -> None:
    first = schedule("--param", "a=3")
    kfp.add_recurring_run(display_name="weekly", description="of others")
    words = ("schedule", "kfp", "a.py", "--cron", "0 3 * * *", "--name", "nightly", "--delete", "--host", kfp.url, "-o", "json")
    assert json.loads(run(*words).stdout)["removed"] == [first["recurring_run_id"]]
    again = run(*words)
    assert (again.exit_code, again.stdout) == (2, "")
    assert "has no schedule 'nightly'; nothing was deleted" in again.stderr
    assert [each["display_name"] for each in kfp.recurring_runs.values()] == ["weekly"]


def test_a_recurring_run_that_is_gone_already_is_no_error(kfp: KfpApiServer, schedule: Any) -> None:
    first = schedule("--param", "a=3")
    kfp.faults.append(Fault("drop-after", times=1, method="DELETE", path=first["recurring_run_id"]))
    assert schedule("--param", "a=4")["removed"] == [first["recurring_run_id"]]


def test_five_fields_are_completed_and_it_is_said(kfp: KfpApiServer, run: Run, tiny_yaml: str) -> None:
    words = ("schedule", "kfp", tiny_yaml, "--name", "nightly", "--cron", "0 3 * * *", "--host", kfp.url, "--param", "a=1")
    result = run(*words)
    assert "second 0 was added: '0 0 3 * * *'" in result.stderr
    assert the_only(kfp)["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    assert "schedule nightly: unchanged" in run(*words).stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 fields"),
        ("* * *", "3 fields"),
        ("0 0 3 * * * *", "7 fields"),
        ("@daily", "1 fields"),
        ("TZ=UTC 0 3 * * *", "second: 'TZ=UTC' is not one number"),
        ("60 0 3 * * *", "second: '60' is not one number"),
        ("*/30 0 3 * * *", "several runs a minute"),
        ("1,2 0 3 * * *", "several runs a minute"),
    ],
)
def test_cron_text_that_a_server_would_misread_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadSchedule, match=r"^cron: ") as caught:
        cron_of_six_fields(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cron", "99 * * * * *"), "cron: second"),
        (("--param", "b=x"), "b: expected float"),
        (("--param", "nope=1"), "its parameters are a, b, label, loud, options, words"),
        ((), "required, but not given: a (int)"),
        (("--param", "a=1", "--param", "label={{$.pipeline_job_uuid}}"), "label: placeholders"),
        (("--param", "a=1", "--service-account", "Not One"), "service account"),
        (("--param", "a=1", "--name", "a/b"), "name: 'a/b'"),
    ],
)
def test_bad_input_is_refused_before_the_server_is_asked(
    kfp: KfpApiServer, run: Run, tiny_yaml: str, arguments: tuple[str, ...], said: str
) -> None:
    given = () if "--cron" in arguments else ("--cron", CRON)
    result = run("schedule", "kfp", tiny_yaml, "--name", "nightly", "--host", kfp.url, *given, *arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert kfp.requests == []


def test_a_schedule_has_no_fixed_run_id(kfp: KfpApiServer, run: Run, tmp_path: Path, tiny_yaml: str) -> None:
    text = Path(tiny_yaml).read_text("utf-8")
    for name, changed in (("given", "run_id"), ("default", "run_id")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(
            text.replace("label", changed) if name == "default" else text.replace("label", changed).replace("'2e-4'", "''")
        )
        given = ("--param", "run_id=mine") if name == "given" else ()
        words = ("--name", "nightly", "--cron", CRON, "--host", kfp.url, "--param", "a=1")
        result = run("schedule", "kfp", str(file), *words, *given)
        assert result.exit_code == 2
        assert "run_id: every run of a schedule needs an id of its own" in result.stderr
    assert kfp.requests == []


def test_a_schedule_on_a_server_for_many_users_is_in_a_namespace(kfp: KfpApiServer, schedule: Any) -> None:
    kfp.multi_user = True
    assert "--namespace is required" in schedule("--param", "a=3", code=2)["error"]
    assert schedule("--param", "a=3", "--namespace", "team")["action"] == "created"
    assert schedule("--param", "a=3", "--namespace", "team")["action"] == "unchanged"
    assert {each["namespace"] for kind in (kfp.pipelines, kfp.experiments, kfp.recurring_runs) for each in kind.values()} == {
        "team"
    }
    kfp.multi_user = False
    assert "omit --namespace" in schedule("--param", "a=3", "--namespace", "team", code=2)["error"]
