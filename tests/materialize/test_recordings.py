"""What the recorded Trainer built or refused, we build or refuse: through the command, then the parts that it does not print."""

from __future__ import annotations

import json
import re

import pytest
from recorders.trainer_recordings import recordings
from recording_differences import (
    DIFFERENT,
    NEED_A_CLUSTER,
    difference,
    has_snapshot,
    progress_difference,
    snapshot_difference,
    update_difference,
)

from trainwright.api.errors import Invalid
from trainwright.materialize import (
    build_snapshot,
    load_snapshot,
    materialize,
)

AREAS = {
    "example": 5, "flux": 10, "init": 5, "jax": 5, "meta": 5, "mix": 50, "mpi": 20, "nopol": 5, "over": 5, "patch": 20, "pg": 10,
    "plain": 5, "stock": 10, "tmpl": 10, "torch": 10, "tune": 20, "xgb": 10,
}  # fmt: skip
"""Area and the least number of cases there; the area `refuse` is admission alone."""


@pytest.mark.medium
@pytest.mark.parametrize("area", AREAS)
def test_recorded_cases(area: str) -> None:
    cases = [case for case in recordings("cases", f"{area}-*") if case.name not in NEED_A_CLUSTER]
    assert len(cases) >= AREAS[area]
    wrong = {case.name: problem for case in cases if (problem := difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_recorded_cases_with_progress_reports() -> None:
    cases = recordings("cases-status")
    assert len(cases) >= 20
    wrong = {case.name: problem for case in cases if (problem := progress_difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.medium
def test_recorded_snapshots() -> None:
    cases = [case for case in recordings("cases") if has_snapshot(case)]
    assert len(cases) >= 450
    wrong = {case.name: problem for case in cases if (problem := snapshot_difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.medium
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


@pytest.mark.medium
def test_recorded_updates() -> None:
    cases = [case for case in recordings("updates") if case.name not in DIFFERENT and not case.has("delete")]
    assert len(cases) >= 40
    wrong = {case.name: problem for case in cases if (problem := update_difference(case))}
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


@pytest.mark.medium
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
