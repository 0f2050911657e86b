"""The step of a training function: arguments and source reach the training as they are, and its outputs the backend."""

from __future__ import annotations

from typing import Any

import pytest
from backend import Backend
from support.on_first_use import OnFirstUse

shipped = OnFirstUse("trainwright.components")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
TEXT = "a \"quoted\" \\ text, 'false', {}"
GIVEN = {"model": TEXT, "data": {"restarts": [1, "1", True]}, "limits": []}


def test_values_pass_through_a_training_as_they_are(backend: Backend) -> None:
    @shipped.train_function(runtime="jax-distributed", limits={"restarts": 1}, func_args={"seed": 2**60 + 1})
    def fit(model: str, data: dict, limits: list, seed: int, most: int | None = None) -> dict:
        # {{workflow.name}} {{$}} $(HOME) $$
        return {"given": [model, data, limits, most], "seed": str(seed), "text": "{{$}} $(HOME) $$"}

    end = backend.run().start(fit, {"run_id": "run", **GIVEN}).wait(90)
    assert end.succeeded, end.log
    expected: dict[str, Any] = {"given": [*GIVEN.values(), None], "seed": str(2**60 + 1), "text": "{{$}} $(HOME) $$"}
    assert end.outputs["Output"] == end.outputs["results"] == expected
