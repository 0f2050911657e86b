"""What the recorded Trainer built or refused, we build or refuse: through the command, then the parts that it does not print."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from recorders import compare_objects
from recorders.trainer_recordings import Recording, recordings
from typer.testing import CliRunner

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid
from trainwright.cli import app
from trainwright.materialize import (
    ProgressReports,
    Settings,
    build_snapshot,
    load_snapshot,
    materialize,
    objects_to_apply,
    update_problems,
)

AREAS = {
    "example": 5, "flux": 10, "init": 5, "jax": 5, "meta": 5, "mix": 50, "mpi": 20, "nopol": 5, "over": 5, "patch": 20, "pg": 10,
    "plain": 5, "stock": 10, "tmpl": 10, "torch": 10, "tune": 20, "xgb": 10,
}  # fmt: skip
"""Area and the least number of cases there; the area `refuse` is admission alone."""
NEED_A_CLUSTER = {"pg-volcano-priority-missing", "pg-volcano-priority-missing-twice"}
SETTINGS = Settings(
    progress=ProgressReports("https://kubeflow-trainer-controller-manager.kubeflow-system.svc:24006", "MASKED CA")
)


@pytest.mark.parametrize("area", AREAS)
def test_recorded_cases(area: str) -> None:
    cases = [case for case in recordings("cases", f"{area}-*") if case.name not in NEED_A_CLUSTER]
    assert len(cases) >= AREAS[area]
    wrong = {case.name: problem for case in cases if (problem := difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def difference(case: Recording) -> str:
    """How our answer to a case differs from the recording; empty when it does not."""
    answer = CliRunner().invoke(app, ["materialize", "-f", str(case.folder / "input.yaml"), "-o", "json"])
    if case.has("refused") or case.has("failed"):
        return _refusal_difference(case, answer.exit_code, answer.output)
    if case.has("events") and answer.exit_code == 2:
        return ""
    if answer.exit_code != 0:
        return f"exit {answer.exit_code}: {answer.output[:200]}"
    return case.difference(case.documents("objects"), json.loads(answer.stdout)["items"])


def _refusal_difference(case: Recording, exit_code: int, said: str) -> str:
    """A refusal has to name a field that the real one names."""
    if exit_code != 2:
        return f"should be refused, exit {exit_code}"
    refusals = case.documents("refused") if case.has("refused") else [{}]
    causes, message = refusals[0].get("causes") or [], refusals[0].get("message") or ""
    fields = {cause["field"] for cause in causes if cause["field"] not in ("", "<nil>")}
    fields = fields or set(re.findall(r"\b(?:spec|metadata)(?:\.\w+(?:\[\d+\])?)+", message))
    named = not fields or any(field.lower() in said.lower() for field in fields)
    return "" if named else f"none of {sorted(fields)} is named: {said[:200]}"


def test_recorded_cases_with_progress_reports() -> None:
    cases = recordings("cases-status")
    assert len(cases) >= 20
    wrong = {case.name: problem for case in cases if (problem := progress_difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)


def progress_difference(case: Recording) -> str:
    try:
        got = materialize(*case.trainjob_and_runtime(), settings=SETTINGS)
    except Invalid as error:
        return "" if case.has("refused") or case.has("failed") else str(error)
    return case.difference(case.documents("objects"), got)


BY_ITS_CONTROLLER = {"meta-runtime-finalizer": "another controller removes the finalizer first"}


@pytest.mark.medium
def test_recorded_snapshots() -> None:
    cases = [case for case in recordings("cases") if has_snapshot(case)]
    assert len(cases) >= 450
    wrong = {case.name: problem for case in cases if (problem := snapshot_difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)


def has_snapshot(case: Recording) -> bool:
    """Whether there is one to compare; what we refuse and Trainer only snapshots is for the other tests."""
    if not case.has("snapshot") or case.name in BY_ITS_CONTROLLER:
        return False
    try:
        case.trainjob_and_runtime()
    except Invalid:
        return False
    return True


def snapshot_difference(case: Recording) -> str:
    [want], got = case.documents("snapshot"), build_snapshot(*case.trainjob_and_runtime())
    want["data"], got["data"] = _parsed(want["data"]), _parsed(got["data"])
    return "; ".join(compare_objects.diff(_without_uids(want), _without_uids(got))[:3])


def _parsed(data: dict[str, str]) -> dict[str, object]:
    runtime = yaml.safe_load(data["runtime"])
    if runtime["kind"] == "TrainingRuntime":
        runtime["metadata"].setdefault("namespace", "default")
    return {"runtime": runtime}


def _without_uids(config: dict[str, object]) -> object:
    return json.loads(re.sub(r'"uid": "[^"]*"', '"uid": ""', json.dumps(config)))


def test_snapshot_builds_the_same_objects_as_its_runtime() -> None:
    for case in recordings("cases", "mix-*")[::4]:
        try:
            trainjob, runtime = case.trainjob_and_runtime()
            expected = materialize(trainjob, runtime)
        except Invalid:
            continue
        trainjob["metadata"]["uid"] = "1"
        for obj in expected:
            obj["metadata"]["ownerReferences"][0]["uid"] = "1"
        snapshot = build_snapshot(trainjob, runtime)
        assert materialize(trainjob, load_snapshot(snapshot, trainjob)) == expected, case.name


DIFFERENT = {
    "imm-sus-nothing": "nothing changed, so no event woke the real controller",
    "runtime-image-suspended": "a change of a runtime wakes nobody",
    "runtime-ns-image-suspended": "a change of a runtime wakes nobody",
    "suspend-off-flux": "our certificate is random, and therefore made once",
    "suspend-off-tune": "it can be resumed here: the claims of a JobSet do not change",
}


def test_recorded_updates() -> None:
    cases = [case for case in recordings("updates") if case.name not in DIFFERENT and not case.has("delete")]
    assert len(cases) >= 40
    wrong = {case.name: problem for case in cases if (problem := update_difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def update_difference(case: Recording) -> str:
    old, runtime = case.trainjob_and_runtime("before")
    stored = {_key(obj): obj for obj in materialize(old, runtime)}
    try:
        new = _updated(case, old, runtime)
        objects = objects_to_apply(materialize(new, runtime), new, lambda obj: stored.get(_key(obj)))
    except Invalid as error:
        return "" if case.has("refused") or case.has("failed") else str(error)[:300]
    if case.has("refused") or case.has("failed"):
        return "should be refused"
    return case.difference(case.documents("objects"), objects)


def _updated(case: Recording, old: dict[str, object], runtime: dict[str, object]) -> dict[str, object]:
    new = old
    for document in case.documents("after"):
        if document["kind"] != "TrainJob":
            admit(document, runtime)
            continue
        new = admit(document, old).object
        if problems := list(update_problems(old, new, runtime)):
            raise Invalid.of("TrainJob", case.name, problems)
    return new


def _key(obj: dict[str, object]) -> tuple[object, object]:
    return obj["apiVersion"], obj["kind"]


def test_the_parts_of_flux_scripts_that_differ_from_job_to_job() -> None:
    compared = 0
    for case in recordings("cases"):
        if not case.has("flux"):
            continue
        scripts = next(o for o in materialize(*case.trainjob_and_runtime()) if o["metadata"]["name"].endswith("-flux-entrypoint"))
        for script, parts in case.documents("flux")[0].items():
            for before, value in parts.items():
                line = rf"{re.escape(before)}(?: ?[=>] ?\"?| ){re.escape(value)}(?=[\" \n]|$)"
                assert re.search(line, scripts["data"][script], re.MULTILINE), f"{case.name} {script} {before}: {value!r}"
                compared += 1
    assert compared >= 100
