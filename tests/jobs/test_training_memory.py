"""The estimate of a training's memory, compared with peaks that were measured, and what it advises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.jobs.memory.training_memory import GIB, advice, training_memory
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.trainers.dpo import DpoSettings
from trainwright.jobs.trainers.kto import KtoSettings
from trainwright.jobs.trainers.sft import SftSettings

LLAMA_8B = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "tie_word_embeddings": False,
}
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


@pytest.mark.parametrize(("config", "billions"), [(LLAMA_8B, 8.03), (QWEN_600M, 0.596)])
def test_parameters_are_those_that_the_models_have(config: dict[str, Any], billions: float) -> None:
    assert shape_of(config).parameters / 1e9 == pytest.approx(billions, rel=0.002)


@pytest.mark.parametrize(
    ("method", "batch_size", "max_length", "gib"), [("lora", 2, 256, 2.46), ("lora", 8, 256, 6.94), ("full", 4, 512, 6.27)]
)
def test_an_estimate_is_near_the_peak_that_was_measured(method: str, batch_size: int, max_length: int, gib: float) -> None:
    # Of TRL 1.16 with one process and one thread, without the buckets of several processes.
    settings = SftSettings.model_validate({"method": method, "batch_size": batch_size, "max_length": max_length, "cpu": True})
    assert training_memory(shape_of(MEASURED), settings).total / GIB == pytest.approx(gib, rel=0.15)


def test_the_configuration_of_the_language_model_is_found_within_that_of_several_modalities() -> None:
    assert shape_of({"vision_config": {}, "text_config": LLAMA_8B, "tie_word_embeddings": False}) == shape_of(LLAMA_8B)


@pytest.mark.parametrize(
    "config", [{}, {"hidden_size": 8}, {**LLAMA_8B, "num_hidden_layers": "32"}, {**LLAMA_8B, "vocab_size": True}]
)
def test_a_configuration_without_the_sizes_of_a_decoder_has_no_shape(config: dict[str, Any]) -> None:
    assert ModelShape.of_config(config) is None


def test_counted_parameters_take_the_place_of_computed_ones() -> None:
    shape = ModelShape.of_config(LLAMA_8B, 9_000_000_000)
    assert shape is not None
    assert shape.parameters == 9_000_000_000


def test_weights_in_four_bits_need_a_fifth_and_experts_are_all_in_memory() -> None:
    lora, qlora = (
        training_memory(shape_of(LLAMA_8B), SftSettings.model_validate({"method": method})) for method in ("lora", "qlora")
    )
    assert qlora.weights < lora.weights / 5
    experts = shape_of({**LLAMA_8B, "num_local_experts": 8, "num_experts_per_tok": 2})
    assert experts.parameters > 5 * shape_of(LLAMA_8B).parameters
    assert training_memory(experts, SftSettings()).activations < 2 * lora.activations


def test_a_reference_of_all_weights_is_a_second_copy_of_them() -> None:
    shape = shape_of(QWEN_600M)
    full, lora = DpoSettings(method="full"), DpoSettings(method="lora")
    assert training_memory(shape, full).weights == 2 * training_memory(shape, lora).weights
    ahead = DpoSettings(method="full", precompute_reference=True)
    assert training_memory(shape, ahead).weights == training_memory(shape, lora).weights


def test_advice_for_kto_keeps_the_two_rows_that_it_needs() -> None:
    found = advice(shape_of(QWEN_600M), KtoSettings(batch_size=8, cpu=True, max_length=8192), 10**15)
    assert [words.rpartition(" (")[0].split(" and ")[0] for words in found] == ["batch_size 4", "batch_size 2", "max_length 4096"]


def test_a_pair_is_two_rows_and_a_marked_answer_one() -> None:
    shape = shape_of(QWEN_600M)
    sft, dpo, kto = (training_memory(shape, settings).activations for settings in (SftSettings(), DpoSettings(), KtoSettings()))
    assert dpo == 2 * sft
    assert kto == sft


def test_rows_are_no_longer_than_the_longest_of_the_data() -> None:
    short = replace(shape_of(QWEN_600M), most_tokens=128)
    assert training_memory(short, SftSettings()) == training_memory(shape_of(QWEN_600M), SftSettings(max_length=128))


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
