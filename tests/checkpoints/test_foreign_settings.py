"""No setting of a stranger's model or adapter makes a library run, import or read something else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.checkpoints.formats.foreign_settings import ELSEWHERE, foreign_settings_error
from trainwright.checkpoints.formats.whole_files import ADAPTER_CONFIG, CONFIG

_LOADS = re.compile(
    r"(?:from_pretrained|import_module|torch_load|load_file|cached_file|hf_hub_download|snapshot_download|torch\.load)"
    r"\(([^()]*(?:\([^()]*\))?[^()]*)\)"
)
_HARMLESS = {
    "megatron_core",  # read only with megatron_config
    "tokenizer_name_or_path",  # read only when a prompt is trained from a text, without trust_remote_code
    "_name_or_path",  # of the model, in a tool for quantization
}
_KERNELS: list[Any] = [
    "evil/kernel",
    "kernels-community/flash-attn",
    "evil/kernel@v1:run",
    "paged|evil/kernel",
    {"": "evil/kernel"},
]


def write(folder: Path, name: str, settings: object) -> Path:
    (folder / name).write_text(json.dumps(settings), "utf-8")
    return folder


@pytest.mark.parametrize("kernel", _KERNELS)
@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation", "experts_implementation"])
@pytest.mark.parametrize("within", ["{}", '{"text_config": {}}', '{"parts": [{}]}'])
def test_kernels_of_the_hub_are_refused(tmp_path: Path, kernel: object, key: str, within: str) -> None:
    settings = within.replace("{}", json.dumps({key: kernel}))
    error = foreign_settings_error(write(tmp_path, CONFIG, json.loads(settings)))
    assert error is not None
    assert error.startswith(f"config.json: {key} is ")


@pytest.mark.parametrize("key", ELSEWHERE)
def test_adapters_that_name_something_else_are_refused(tmp_path: Path, key: str) -> None:
    write(tmp_path, CONFIG, {})
    error = foreign_settings_error(write(tmp_path, ADAPTER_CONFIG, {"peft_type": "LORA", key: {"0": "evil/adapter"}}))
    assert error is not None
    assert error.startswith(f"adapter_config.json: {key} is ")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("[" * 100_000, "config.json is not JSON"),
        ("[]", "config.json is not a JSON object"),
        (f'{{"a": "{"x" * 17_000_000}"}}', "config.json cannot be read"),
    ],
    ids=["deep", "list", "large"],
)
def test_configuration_that_cannot_be_read_is_refused(tmp_path: Path, content: str, error: str) -> None:
    (tmp_path / CONFIG).write_text(content, "utf-8")
    assert (foreign_settings_error(tmp_path) or "").startswith(error)


def test_usual_settings_are_accepted(tmp_path: Path) -> None:
    write(
        tmp_path,
        CONFIG,
        {"_attn_implementation": "flash_attention_2", "_name_or_path": "org/model", "auto_map": {"AutoModel": "a.B"}},
    )
    write(tmp_path, ADAPTER_CONFIG, {"peft_type": "LORA", "megatron_config": None, "megatron_core": "megatron.core"})
    assert foreign_settings_error(tmp_path) is None


@pytest.mark.medium
def test_every_setting_that_peft_loads_from_is_known() -> None:
    require_packages("peft")
    import peft

    found = {
        setting
        for path in Path(peft.__file__).parent.rglob("*.py")
        for call in _LOADS.findall(path.read_text("utf-8"))
        for setting in re.findall(r"\b\w*config\.(\w+)", call)
    }
    assert found - {"json"} <= _HARMLESS | ELSEWHERE.keys()
