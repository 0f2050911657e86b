"""Admission: defaults, and every problem of an object in one error that names the fields."""

from pathlib import Path
from typing import Any

import pytest
from factories import trainjob
from support.shared_folder import shared_folder

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import BadRequest, Invalid, Undecodable
from trainwright.api.objects import copy_of


def test_the_argument_is_left_alone() -> None:
    obj = trainjob()
    before = copy_of(obj)
    admit(obj)
    assert obj == before


def test_all_problems_come_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        admit(trainjob(trainer={"numNodes": -1, "numProcPerNode": 0}, suspend=3))
    assert len(refused.value.problems) == 3
    with pytest.raises(Invalid) as refused:
        admit(trainjob(trainer={"numNodes": -1, "image": "x" * 501}))
    assert refused.value.status()["details"]["causes"][0]["field"].startswith("spec.")


@pytest.mark.parametrize("obj", [[], "text", {}, {"kind": ""}, {"kind": "Pod", "metadata": "x"}])
def test_malformed_objects_are_a_bad_request(obj: Any) -> None:
    with pytest.raises(BadRequest):
        admit(obj)


def test_the_upstream_runtimes_are_admitted() -> None:
    from trainwright.api.documents import load_documents

    files = sorted(shared_folder("upstream/trainer/runtimes").rglob("*.yaml"))
    assert files
    for file in files:
        for document in load_documents(file.read_text("utf-8"), str(file)):
            assert admit(document).warnings == []


def test_the_page_lists_every_rule_of_the_webhooks() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/admission.md").read_text("utf-8")
    rows = {
        f"| {kind} | `{rule.field}` | {rule.requires} |"
        for kind, one in ADMISSION_SPECS.items()
        for rule in (*one.rules, *one.status_rules)
    }
    assert sorted(row for row in rows if row not in page) == []


def test_a_problem_says_where_to_look_when_its_field_does_not_exist() -> None:
    with pytest.raises(Invalid) as refused:
        admit(trainjob(), context=AdmissionContext(lookup=lambda kind, namespace, name: None))
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    (problem,) = refused.value.problems
    assert (problem.field, problem.where) == ("spec.RuntimeRef", "spec.runtimeRef.name")


def test_problems_of_later_steps_are_told_with_the_first() -> None:
    with pytest.raises(Undecodable) as refused:
        admit(trainjob(trainer={"comand": ["x"], "numNodes": -1}, runtimePatches=[{"manager": "me"}]))
    assert refused.value.message.endswith('strict decoding error: unknown field "spec.trainer.comand"')
    assert [p.where for p in refused.value.problems] == [
        "spec.trainer.comand",
        "spec.trainer.numNodes",
        "spec.runtimePatches[0].manager",
    ]
    assert refused.value.problems[0].hint == "did you mean command?"


@pytest.mark.parametrize("strictness", ["Warn", "Ignore"])
def test_unknown_fields_are_dropped_when_they_are_not_refused(strictness: Any) -> None:
    admitted = admit(trainjob(bogus={"x": 1}), context=AdmissionContext(strictness=strictness))
    assert "bogus" not in admitted.object["spec"]


def test_a_status_is_judged_by_its_schema_alone() -> None:
    context = AdmissionContext(lookup=lambda kind, namespace, name: None, only_status=True)
    old = admit(trainjob()).object
    assert admit({**old, "status": {"jobsStatus": []}}, old, context=context)
    with pytest.raises(Invalid) as refused:
        admit({**old, "status": {"trainerStatus": {"progressPercentage": 101}}}, old, context=context)
    assert refused.value.code == 422
    assert refused.value.problems[0].field == "status.trainerStatus.progressPercentage"
