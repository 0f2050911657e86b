"""Models that TRL's trainers cannot train are recognized by their configuration, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.initializers.trained_models import embedded_tokens, quantization_of, untrainable_reason


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "it is a LlamaForSequenceClassification, which does not write text",
        ),
        ({"architectures": ["BertForTokenClassification", "GPT2LMHeadModel"]}, "BertForTokenClassification"),
        ({"architectures": ["BertForPreTraining"]}, "BertForPreTraining"),
        ({"architectures": ["MistralModel"]}, "MistralModel"),
        ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantized (gptq)"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantized (awq)"),
        ({"quantization_config": {"bits": 4}}, "quantized (unknown)"),
    ],
)
def test_configuration_of_an_untrainable_model_has_a_reason(config: dict[str, Any], reason: str) -> None:
    assert reason in untrainable_reason(config)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"architectures": ["LlamaForCausalLM"], "is_encoder_decoder": False},
        {"architectures": ["GPT2LMHeadModel"]},
        {"architectures": ["Gemma3ForConditionalGeneration"]},
        {"architectures": []},
        {"architectures": "LlamaModel"},
        {"architectures": ["SomethingNew"]},
        {"quantization_config": {}},
        {"quantization_config": None},
        {"quantization_config": {"load_in_4bit": True}},
        {"quantization_config": {"quant_method": "bitsandbytes"}},
        {"quantization_config": {"quant_method": "mxfp4"}},
    ],
)
def test_configuration_of_a_model_that_may_be_trained_has_none(config: dict[str, Any]) -> None:
    assert untrainable_reason(config) == ""


@pytest.mark.parametrize(
    ("given", "method"), [(None, ""), ({"load_in_8bit": True}, "bitsandbytes"), ({"quant_method": "fp8"}, "fp8"), ("gptq", "")]
)
def test_quantization_is_named(given: Any, method: str) -> None:
    assert quantization_of({"quantization_config": given}) == method


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"vocab_size": 5}, 5),
        ({"vocab_size": 5, "text_config": {"vocab_size": 7}}, 7),
        ({"vocab_size": 5, "text_config": {}}, 5),
        ({"vocab_size": "5"}, 0),
        ({}, 0),
    ],
)
def test_embedded_tokens_are_those_of_the_text_model(config: dict[str, Any], count: int) -> None:
    assert embedded_tokens(config) == count
