"""How objects that we build, and our refusals, differ from those that the recorded Trainer answered with."""

from __future__ import annotations

import json
import re

import yaml
from recorders import compare_objects
from recorders.trainer_recordings import Recording
from typer.testing import CliRunner

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid
from trainwright.cli import app
from trainwright.materialize import (
    ProgressReports,
    Settings,
    build_snapshot,
    materialize,
    objects_to_apply,
    update_problems,
)

NEED_A_CLUSTER = {"pg-volcano-priority-missing", "pg-volcano-priority-missing-twice"}
DIFFERENT = {
    "imm-sus-nothing": "nothing changed, so no event woke the real controller",
    "runtime-image-suspended": "a change of a runtime wakes nobody",
    "runtime-ns-image-suspended": "a change of a runtime wakes nobody",
    "suspend-off-flux": "our certificate is random, and therefore made once",
    "suspend-off-tune": "it can be resumed here: the claims of a JobSet do not change",
}
BY_ITS_CONTROLLER = {"meta-runtime-finalizer": "another controller removes the finalizer first"}
SETTINGS = Settings(
    progress=ProgressReports("https://kubeflow-trainer-controller-manager.kubeflow-system.svc:24006", "MASKED CA")
)


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


def progress_difference(case: Recording) -> str:
    try:
        got = materialize(*case.trainjob_and_runtime(), settings=SETTINGS)
    except Invalid as error:
        return "" if case.has("refused") or case.has("failed") else str(error)
    return case.difference(case.documents("objects"), got)


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
