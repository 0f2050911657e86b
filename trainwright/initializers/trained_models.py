"""Whether TRL's trainers for text can train a model at all, by its configuration. Other programs may train others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.text.foreign_texts import one_line

_WRITES_TEXT = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Ends of the names of classes that predict the next token. TRL loads the first class that the configuration names."""
_OTHER_HEADS = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForMaskedLM",
    "ForPreTraining",
    "Model",
)
"""Of classifiers, of models that fill gaps, and of those without a head, such as for embeddings."""
_TRAINED_QUANTIZED = ("bitsandbytes", "fp8", "mxfp4")
"""For the others, transformers refuses to train, or needs packages that deploy/images/trainer.txt lacks."""


def untrainable_reason(config: Mapping[str, Any]) -> str:
    """Return why TRL's trainers cannot train a model with this configuration, and what to use instead; empty if they may."""
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else ""
    if isinstance(named, str) and not named.endswith(_WRITES_TEXT) and named.endswith(_OTHER_HEADS):
        return f"it is a {one_line(named)[:80]}, which does not write text; use a base model whose architecture ends with ForCausalLM"
    if config.get("is_encoder_decoder") is True:
        return "it has an encoder and a decoder, and only models with a decoder alone are trained; use one of these"
    method = quantization_of(config)
    if method and method not in _TRAINED_QUANTIZED:
        return (
            f"its weights are quantized ({one_line(method)[:40]}), and such weights are not trained; use the model from which they "
            "were made: the method qlora trains it in 4 bits"
        )
    return ""


def quantization_of(config: Mapping[str, Any]) -> str:
    """Return how the weights are quantized, empty if they are not."""
    given = config.get("quantization_config")
    if not isinstance(given, Mapping) or not given:  # not quantized
        return ""
    is_bitsandbytes = given.get("load_in_4bit") or given.get("load_in_8bit")
    return str(given.get("quant_method") or ("bitsandbytes" if is_bitsandbytes else "unknown"))


def embedded_tokens(config: Mapping[str, Any]) -> int:
    """Return the number of tokens that have an embedding, 0 if it is not known."""
    of_text = config.get("text_config")
    found = (of_text if isinstance(of_text, Mapping) and "vocab_size" in of_text else config).get("vocab_size")
    return found if isinstance(found, int) and found > 0 else 0
