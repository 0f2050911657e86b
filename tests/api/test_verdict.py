"""The verdict on a job that its client has given up: what counts, what does not, and how large it gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api import names
from trainwright.api.phase import FailedPod, Phase, Verdict, is_superseded, phase_of, superseded, verdict_of

POD = FailedPod("a-node-0-1-x", "node", 1, "node", 137, "OOMKilled", "", "", "", "4Gi", ("step 1", "  Killed"))
VERDICT = Verdict(
    "FailedTooOften",
    "pod a exited 137",
    "OutOfMemory",
    "2026-01-01T00:00:00Z",
    (POD,),
    ("last",),
    {"what": "run", "reports": 3},
    resumable=True,
)


def job(annotations: dict[str, str], *, suspend: bool = True, generation: int = 2, **status: Any) -> dict[str, Any]:
    marks = {names.SUSPENDED_BY_ANNOTATION: names.suspended_by_us(2)}
    metadata = {"name": "a", "namespace": "default", "generation": generation, "annotations": {**marks, **annotations}}
    return {"metadata": metadata, "spec": {"suspend": suspend}, "status": status}


def test_verdict_is_read_as_it_was_written() -> None:
    assert verdict_of(job(VERDICT.annotation(2))) == VERDICT


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (job(VERDICT.annotation(2)), Phase.Failed),
        (job(VERDICT.annotation(2), suspend=False), Phase.Starting),
        (job(VERDICT.annotation(2), generation=4), Phase.Suspended),
        (job(VERDICT.annotation(2), conditions=[{"type": "Complete", "status": "True"}]), Phase.Succeeded),
        (job({}), Phase.Suspended),
    ],
    ids=["suspended", "started again", "started and suspended again", "ended", "without"],
)
def test_verdict_counts_while_the_job_stays_suspended(found: dict[str, Any], phase: Phase) -> None:
    assert phase_of(found) is phase


def test_verdict_without_our_suspension_does_not_count() -> None:
    queued = job(VERDICT.annotation(2))
    del queued["metadata"]["annotations"][names.SUSPENDED_BY_ANNOTATION]
    assert verdict_of(queued) is None


def test_replaced_job_that_has_ended_is_still_superseded() -> None:
    ended = job(superseded("its task was cleared").annotation(2), conditions=[{"type": "Complete", "status": "True"}])
    assert is_superseded(ended)
    assert not is_superseded(job(VERDICT.annotation(2)))
    assert verdict_of(ended) is None


@pytest.mark.medium
def test_long_logs_are_cut_to_16_kib() -> None:
    for letter in ("ü", "😀", '"', "\\"):
        pods = tuple(FailedPod(f"pod-{number}", message=letter * 5000, lines=(letter * 5000,) * 50) for number in range(9))
        verdict = Verdict("FailedTooOften", letter * 5000, pods=pods, details={"since": letter * 20000})
        (text,) = verdict.annotation(2).values()
        assert len(text.encode()) <= 16 * 1024
        assert verdict_of(job({names.VERDICT_ANNOTATION: text})) is not None


def test_first_pods_are_kept() -> None:
    pods = tuple(FailedPod(f"pod-{number}", lines=("x" * 300,) * 50) for number in range(9))
    found = verdict_of(job(Verdict("FailedTooOften", "", pods=pods).annotation(2)))
    assert found is not None
    assert [pod.name for pod in found.pods] == [f"pod-{number}" for number in range(4)]


@pytest.mark.medium
@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_foreign_annotations_do_not_count(value: Any) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    assert verdict_of(job({names.VERDICT_ANNOTATION: text})) is None


@pytest.mark.medium
@given(
    st.fixed_dictionaries(
        {"generation": st.just(2), "reason": st.just("X")},
        optional={
            key: st.none() | st.booleans() | st.text() | st.lists(st.text() | st.dictionaries(st.text(), st.integers(-9, 9)))
            for key in ("message", "error", "time", "pods", "lines", "details", "resumable")
        },
    )
)
def test_fields_of_other_types_are_left_out(found: dict[str, Any]) -> None:
    verdict = verdict_of(job({names.VERDICT_ANNOTATION: json.dumps(found)}))
    assert verdict is not None
    assert all(isinstance(line, str) for line in verdict.lines)
    assert all(isinstance(pod, FailedPod) for pod in verdict.pods)
