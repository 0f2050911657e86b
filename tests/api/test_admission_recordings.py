"""What the recorded API server, CRDs and webhooks admitted or refused, `admit` admits or refuses, with the same fields and words."""

from __future__ import annotations

import json

import pytest
from recorders.admission_recordings import cases, difference, documents, flat, needs_policy, read, scenario_difference
from recording_archives import recordings_of

from trainwright.api.admission.admit import admit
from trainwright.api.errors import Invalid
from trainwright.cli.materialize import materialize_documents

NEED_A_CLUSTER = {"pg-volcano-priority-missing", "pg-volcano-priority-missing-twice"}
"""Whether a PriorityClass is there, only a server can say."""
NEEDS_A_NAMESPACE = "namespaces "
"""A refusal that is no admission: the object's namespace is not there, which the server looks at before."""


@pytest.mark.medium
@pytest.mark.parametrize("name", ["cases", "cases-status", "updates"])
def test_recorded_admissions(name: str) -> None:
    folder = recordings_of("materialize")
    seen, wrong = 0, {}
    for case in cases(folder, name):
        refused = read(case / "refused.yaml") if (case / "refused.yaml").exists() else None
        if refused and (needs_policy(refused) or refused["message"].startswith(NEEDS_A_NAMESPACE)):
            continue
        seen += 1
        if problem := difference(case):
            wrong[case.name] = problem
    assert seen >= 20
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_denials_of_a_policy_are_refused_when_the_template_is_there() -> None:
    """Marked by rule: a denial about what only the patched template of the runtime shows."""
    folder, seen = recordings_of("materialize"), 0
    for case in cases(folder, "cases"):
        refused = read(case / "refused.yaml") if (case / "refused.yaml").exists() else None
        if refused is None or not needs_policy(refused) or case.name in NEED_A_CLUSTER:
            continue
        seen += 1
        with pytest.raises(Invalid):
            materialize_documents(documents(case / "input.yaml"))
    assert seen >= 5


@pytest.mark.medium
def test_jobsets_are_stored_as_recorded() -> None:
    """What the controller sent, through our admission, is what the server stored after its own."""
    wrong, seen = {}, 0
    for case in cases(recordings_of("materialize"), "cases", "cases-status"):
        if not (case / "cluster.yaml").exists():
            continue
        sent = [obj for obj in documents(case / "objects.yaml") if obj["kind"] == "JobSet"]
        stored = [obj for obj in documents(case / "cluster.yaml") if obj["kind"] == "JobSet"]
        if not sent:
            continue
        seen += 1
        ours, theirs = flat(admit(sent[0]).object), flat(stored[0])
        if differing := sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)):
            wrong[case.name] = differing[:5]
    assert seen > 400
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_recorded_refusals_of_jobs_and_jobsets() -> None:
    """Scenarios of the areas `refuse-*`: creations, and patches of what was created."""
    folder = recordings_of("behaviour") / "cases"
    scenarios = sorted(path for path in folder.iterdir() if path.name.startswith("refuse-"))
    assert len(scenarios) > 50
    wrong = {path.name: problem for path in scenarios if (problem := scenario_difference(path))}
    assert not wrong, json.dumps(wrong, indent=1)[:6000]
