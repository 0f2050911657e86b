"""The sizes of a prepared model: from its configuration, and counted in its weights; nothing for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.steps.data.prepare import prepared_shape

CONFIG = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


def model(folder: Path, config: Any = CONFIG, **tensors: list[int]) -> Path:
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name, shape in tensors.items():
        header = json.dumps({"__metadata__": {"format": "pt"}, name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 4]}})
        (folder / f"{name}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(4))
    return folder


def test_parameters_are_counted_over_all_files(tmp_path: Path) -> None:
    assert prepared_shape(model(tmp_path, a=[3, 5], b=[7]))["parameters"] == 22


def test_without_weights_they_are_computed(tmp_path: Path) -> None:
    assert prepared_shape(model(tmp_path))["parameters"] == 16 * 8 + 2 * (4 * 8 * 8 + 3 * 8 * 32)


@pytest.mark.parametrize("config", ["", "[]", "{", '{"hidden_size": 8}', '"text"', json.dumps({**CONFIG, "hidden_size": 1e400})])
def test_a_configuration_of_no_decoder_has_no_shape(tmp_path: Path, config: str) -> None:
    assert prepared_shape(model(tmp_path, config)) == {}


def test_broken_weights_are_no_failure(tmp_path: Path) -> None:
    (model(tmp_path) / "weights.safetensors").write_bytes(b"\xff" * 64)
    assert prepared_shape(tmp_path) == {}


def test_a_folder_without_a_configuration_has_no_shape(tmp_path: Path) -> None:
    assert prepared_shape(tmp_path) == {}
