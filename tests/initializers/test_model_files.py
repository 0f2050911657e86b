"""Of a repository, the files that transformers loads are fetched, and no copies of the weights for anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from servers.hub_server import HubServer
from support.optional_packages import require_packages

from trainwright.checkpoints.formats.whole_files import INDEX
from trainwright.initializers import InitializerError, initialize_model

WHOLE = (2).to_bytes(8, "little") + b"{}"
BESIDE = {"config.json": b'{"architectures": ["LlamaForCausalLM"]}', "tokenizer.json": b"{}"}
WEIGHT_MAP = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
SHARDS = {
    INDEX: json.dumps({"metadata": {}, "weight_map": WEIGHT_MAP}).encode(),
    "model-00001-of-00002.safetensors": WHOLE,
    "model-00002-of-00002.safetensors": WHOLE,
}
COPIES = dict.fromkeys(
    [
        "consolidated.safetensors",
        "model.fp16.safetensors",
        "model.fp16-00001-of-00001.safetensors",
        "pytorch_model.bin",
        "flax_model.msgpack",
        "tf_model.h5",
        "onnx/model.onnx",
        "onnx/model.safetensors",
        "onnx/config.json",
        "original/consolidated.00.pth",
        "checkpoint-500/model.safetensors",
        "model-q4_k_m.gguf",
        "adapter_model.safetensors",
    ],
    WHOLE,
)
TEMPLATES = {"chat_template.jinja": b"t", "additional_chat_templates/tool_use.jinja": b"t"}

OF_LLAMA = {f"original/{name}": b"t" for name in ("tokenizer.model", "params.json", "consolidated.00.pth")}


def fetched(hub: HubServer, target: Path, files: dict[str, bytes]) -> set[str]:
    """Prepare a repository. Returns the names of the files that it got, without those of every model."""
    hub.repository("models/org/model").push({**BESIDE, **files})
    receipt = initialize_model("hf://org/model", target)
    assert {*hub.downloads()} - {INDEX} == {Path(file.path).name for file in receipt.files} - {INDEX}
    return {file.path for file in receipt.files} - BESIDE.keys()


@pytest.mark.medium
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"model.safetensors": WHOLE}, {"model.safetensors"}),
        ({"model.safetensors": WHOLE, **COPIES, **TEMPLATES}, {"model.safetensors", *TEMPLATES}),
        ({"model.safetensors": WHOLE, **OF_LLAMA}, {"model.safetensors", "original/tokenizer.model"}),
        ({**SHARDS, **COPIES}, {*SHARDS}),
        ({**SHARDS, "model-00001-of-00003.safetensors": WHOLE}, {*SHARDS}),
        (
            {"model.safetensors": WHOLE, "adapter_model.safetensors": WHOLE, "adapter_config.json": b"{}"},
            {"model.safetensors", "adapter_model.safetensors", "adapter_config.json"},
        ),
    ],
)
def test_weights_are_fetched_once(hub: HubServer, tmp_path: Path, files: dict[str, bytes], expected: set[str]) -> None:
    assert fetched(hub, tmp_path / "model", files) == expected


@pytest.mark.medium
def test_one_file_is_preferred_to_shards(hub: HubServer, tmp_path: Path) -> None:
    hub.repository("models/org/model").push({**BESIDE, **SHARDS, "model.safetensors": WHOLE})
    receipt = initialize_model("hf://org/model", tmp_path / "model")
    assert {file.path for file in receipt.files} == {*BESIDE, "model.safetensors"}
    assert not (tmp_path / "model" / INDEX).exists()


GGUF_ONLY: list[tuple[dict[str, bytes], str]] = [
    ({"a.gguf": b"", "README.md": b"---\nbase_model: org/original\n---\n"}, "names the original model: hf://org/original"),
    ({"a.gguf": b"", "README.md": b"---\nbase_model: [org/first, org/b]\n---\n"}, "original model: hf://org/first"),
    ({"a.gguf": b"", "README.md": b"---\n: {\n---\n"}, "reads safetensors; use the model that they were made from"),
    *(
        ({"a.gguf": b"", "README.md": b"---\n%s\n---\n" % card}, "reads safetensors; use the model that they were made from")
        for card in (
            b"base_model: run this; rm -rf ~",
            b"base_model: org/" + b"a" * 100_000,
            b"base_model: ../../etc/passwd",
            b"base_model: !!python/object/apply:os.system [touch ran]",
            b"a: &a [x, x]\n"
            + b"".join(b"%c: &%c [*%c, *%c]\n" % (n, n, n - 1, n - 1) for n in range(98, 122))
            + b"base_model: *y",
        )
    ),
    ({f"{number}.gguf": b"" for number in range(5)}, "(0.gguf, 1.gguf, 2.gguf and 2 more), but training reads safetensors"),
]
NO_WEIGHTS: list[tuple[dict[str, bytes], str]] = [
    ({"consolidated.safetensors": WHOLE}, f"has neither model.safetensors nor {INDEX}"),
    ({"pytorch_model.bin": b"p"}, "pickled weights (.bin, .pt) are not supported: convert pytorch_model.bin"),
    ({}, "has no safetensors weights"),
    ({INDEX: SHARDS[INDEX]}, "is incomplete: model-00001-of-00002.safetensors: it is missing"),
    ({INDEX: b"{"}, f"is incomplete: {INDEX} is incomplete"),
]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("files", "message"), [*GGUF_ONLY, *(({**BESIDE, **files}, message) for files, message in [GGUF_ONLY[0], *NO_WEIGHTS])]
)
def test_repository_without_weights_says_what_it_needs(
    hub: HubServer, tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    hub.repository("models/org/model").push(files)
    with pytest.raises(InitializerError) as caught:
        initialize_model("hf://org/model", tmp_path / "model")
    assert str(caught.value).startswith("hf://org/model")
    assert message in str(caught.value)


@pytest.mark.medium
@pytest.mark.parametrize("files", [{"model.safetensors": WHOLE}, SHARDS, {**SHARDS, "model.safetensors": WHOLE}])
def test_weights_are_those_that_transformers_resolves(hub: HubServer, tmp_path: Path, files: dict[str, bytes]) -> None:
    require_packages("torch", "transformers")
    from transformers import modeling_utils

    everything = {**files, **COPIES}
    for name, content in everything.items():
        (tmp_path / "all" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / name).write_bytes(content)
    resolve = modeling_utils._get_resolved_checkpoint_files
    paths, _ = resolve(str(tmp_path / "all"), None, None, None, None, False)
    expected = {Path(path).relative_to(tmp_path / "all").as_posix() for path in paths}
    assert {name for name in fetched(hub, tmp_path / "model", everything) if name.endswith(".safetensors")} == expected
