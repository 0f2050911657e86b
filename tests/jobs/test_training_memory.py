"""The estimate of a training's memory, compared with peaks that were measured, and what it advises."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.submit.training_memory import GIB, advice, training_memory
from trainwright.jobs.trainers.sft import SftSettings

QWEN_600M = {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "vocab_size": 151936,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "tie_word_embeddings": True,
}
MEASURED = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "vocab_size": 32000,
    "num_attention_heads": 12,
    "intermediate_size": 2048,
    "tie_word_embeddings": False,
}


def shape_of(config: dict[str, Any]) -> ModelShape:
    shape = ModelShape.of_config(config)
    assert shape is not None
    return shape


@pytest.mark.parametrize(
    ("method", "batch_size", "max_length", "gib"), [("lora", 2, 256, 2.46), ("lora", 8, 256, 6.94), ("full", 4, 512, 6.27)]
)
def test_an_estimate_is_near_the_peak_that_was_measured(method: str, batch_size: int, max_length: int, gib: float) -> None:
    # Of TRL 1.16 with one process and one thread, without the buckets of several processes.
    settings = SftSettings.model_validate({"method": method, "batch_size": batch_size, "max_length": max_length, "cpu": True})
    assert training_memory(shape_of(MEASURED), settings).total / GIB == pytest.approx(gib, rel=0.15)


@given(
    room=st.integers(1, 200),
    method=st.sampled_from(["lora", "qlora", "full"]),
    batch=st.integers(1, 64),
    length=st.integers(64, 8192),
    cpu=st.booleans(),
)
def test_advice_names_valid_settings_that_fit(room: int, method: str, batch: int, length: int, cpu: bool) -> None:
    given_ = {"method": method, "batch_size": batch, "max_length": length, "cpu": cpu and method != "qlora"}
    settings, shape = SftSettings.model_validate(given_), shape_of(QWEN_600M)
    for words in advice(shape, settings, room * GIB):
        changes = dict(part.split(" ") for part in words.rpartition(" (")[0].split(" and "))
        changed = SftSettings.model_validate({**given_, **changes})
        assert training_memory(shape, changed).total <= room * GIB
        assert changed.batch_size * changed.gradient_accumulation == batch, "as many rows for each update"
        assert "qlora" not in words or not settings.cpu
