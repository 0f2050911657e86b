"""Generated objects: admission answers or refuses with its one typed error, never otherwise; twice the same; and quickly."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from factories import trainjob
from hypothesis import given, settings
from hypothesis import strategies as st
from shape_values import objects

from trainwright.api.admission.admit import AdmissionContext, admit
from trainwright.api.admission.specs import ADMISSION_SPECS
from trainwright.api.errors import ApiError, Invalid
from trainwright.api.objects import copy_of

# The profile `fuzz` has its own, larger count; the ordinary run has 600 over all kinds.
MANY = {} if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else {"max_examples": 120}
KINDS = ["TrainJob", "TrainingRuntime", "ClusterTrainingRuntime", "JobSet", "Job"]


def generated(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    admission_spec = ADMISSION_SPECS[kind]
    return objects(admission_spec.schema, admission_spec.kind.api_version, kind)


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_only_the_typed_error_comes(kind: str) -> None:
    @settings(**MANY)
    @given(generated(kind), generated(kind), st.sampled_from(["Strict", "Warn", "Ignore"]))
    def check(obj: dict[str, Any], other: dict[str, Any], strictness: Any) -> None:
        context = AdmissionContext(now="2026-01-02T03:04:05Z", strictness=strictness)
        before = copy_of(obj)
        admitted = answer(obj, None, context)
        assert obj == before
        if admitted is None:
            return
        assert answer(admitted, None, context) == admitted, "what was admitted is admitted as it is"
        changed = answer(other, admitted, context)
        assert changed is None or answer(changed, admitted, context) is not None

    check()


def answer(obj: dict[str, Any], old: dict[str, Any] | None, context: AdmissionContext) -> dict[str, Any] | None:
    try:
        return admit(obj, old, context=context).object
    except ApiError as error:
        refusal = error
    assert refusal.message
    assert not isinstance(refusal, Invalid) or refusal.problems
    return None


def test_a_trainjob_is_admitted_well_below_a_millisecond() -> None:
    trainer = {"numNodes": 2, "command": ["python", "t.py"], "env": [{"name": f"V{n}", "value": "x"} for n in range(10)]}
    job = trainjob(trainer=trainer, initializer={"dataset": {"storageUri": "hf://a/b"}})
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        admit(job)
        best = min(best, time.perf_counter() - started)
    assert best < 0.001
