"""The tokens of a tokenizer are read without transformers, and put into a model's settings as transformers does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.checkpoints.special_tokens import (
    aligned_generation,
    aligned_settings,
    generation_settings,
    joined_generation,
    special_token_ids,
)

CHATML = {"bos_token_id": 0, "eos_token_id": 5, "pad_token_id": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer": {"added_tokens": [{"id": 5, "content": "<|im_end|>"}], "model": {"vocab": {"<|im_end|>": 1}}}},
        {"tokenizer": {"model": {"vocab": {"a": 0, "<|im_end|>": 5}}}},
        {"tokenizer": {"model": {"vocab": [["a", 0.1], *[["b", 0.1]] * 4, ["<|im_end|>", 0.0]]}}},
        {"vocab": {"<|im_end|>": 5}},
        {"vocab": {"a": 0}, "added_tokens": {"<|im_end|>": 5}},
    ],
)
def test_id_of_a_token_is_found_in_the_files_of_the_tokenizer(folder: Path, files: dict[str, Any]) -> None:
    write(folder, tokenizer_config={"eos_token": {"content": "<|im_end|>"}, "pad_token": None, "bos_token": "gone"}, **files)
    assert special_token_ids(folder) == {"eos_token_id": 5}


def test_id_of_a_token_is_found_in_the_settings_of_the_tokenizer(folder: Path) -> None:
    write(folder, tokenizer_config={"eos_token": "<|im_end|>", "added_tokens_decoder": {"5": {"content": "<|im_end|>"}}})
    assert special_token_ids(folder) == {"eos_token_id": 5}


@pytest.mark.parametrize("config", ["[]", "{", '{"eos_token": 5}', '{"eos_token": {"content": 5}}'])
def test_tokenizer_that_cannot_be_read_defines_no_tokens(folder: Path, config: str) -> None:
    assert special_token_ids(write(folder, tokenizer_config=config, tokenizer="[")) == {}


@pytest.mark.parametrize(
    ("config", "generation"),
    [
        ({"eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 2}, {"eos_token_id": 1, "bos_token_id": 0, "temperature": 0.6}),
        ({"eos_token_id": 1}, {"eos_token_id": [1, 7], "pad_token_id": 1}),
        ({"eos_token_id": [1, 7]}, {"eos_token_id": 7}),
        ({"eos_token_id": 5}, {}),
        (
            {"eos_token_id": 5, "pad_token_id": 2, "bos_token_id": 0},
            {"eos_token_id": [1, 5], "pad_token_id": 2, "bos_token_id": 0},
        ),
    ],
)
@pytest.mark.medium
def test_settings_are_aligned_as_transformers_aligns_them(config: dict[str, Any], generation: dict[str, Any]) -> None:
    require_packages("transformers")
    from types import SimpleNamespace

    from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast
    from transformers.trainer_utils import align_special_tokens

    given = {"eos_token_id": None, "bos_token_id": None, "pad_token_id": None, **config}
    model = SimpleNamespace(config=LlamaConfig(**given), generation_config=GenerationConfig(**generation))
    align_special_tokens(model, tokenizer_of(PreTrainedTokenizerFast))
    ours, settings = aligned_settings(config, generation, CHATML)
    for name in CHATML:
        assert ours.get(name) == getattr(model.config, name), name
        assert settings.get(name) == getattr(model.generation_config, name), name
    assert settings.get("temperature") == generation.get("temperature")


def tokenizer_of(fast: Any) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    names = ["<s>", "</s>", "<pad>", "a", "b", "<|im_end|>"]
    model = WordLevel({name: number for number, name in enumerate(names)}, unk_token="a")
    return fast(tokenizer_object=Tokenizer(model), bos_token="<s>", eos_token="<|im_end|>", pad_token="<pad>")


def test_settings_of_a_model_of_several_are_those_of_its_text() -> None:
    config, _ = aligned_settings({"text_config": {"eos_token_id": 1}, "eos_token_id": 1}, {}, {"eos_token_id": 5})
    assert config == {"text_config": {"eos_token_id": 5}, "eos_token_id": 1}


def test_further_end_tokens_are_kept() -> None:
    assert aligned_generation({"eos_token_id": [1, 7], "top_p": 0.9}, CHATML) == {
        **CHATML,
        "eos_token_id": [5, 1, 7],
        "top_p": 0.9,
    }
    assert aligned_generation({"eos_token_id": [1, 5]}, {"eos_token_id": 5}) == {"eos_token_id": [1, 5]}
    assert joined_generation({"eos_token_id": 1, "top_p": 0.9}, {"eos_token_id": 5}) == {"eos_token_id": [5, 1], "top_p": 0.9}
    assert joined_generation({"eos_token_id": 1}, {"eos_token_id": [1, 5]}) == {"eos_token_id": [1, 5]}
    assert joined_generation({}, {}) == {}


def test_generation_settings_are_those_of_their_file_or_of_the_configuration(folder: Path) -> None:
    assert (generation_settings(folder), special_token_ids(folder)) == ({}, {})
    write(folder, tokenizer_config={"eos_token": "e"}, vocab={"e": 5})
    assert (generation_settings(folder), special_token_ids(folder)) == ({}, {"eos_token_id": 5})
    write(folder, config={"eos_token_id": 1})
    assert generation_settings(folder) == {"eos_token_id": 1}
    write(folder, generation_config={"eos_token_id": [5, 1]})
    assert generation_settings(folder) == {"eos_token_id": [5, 1]}
