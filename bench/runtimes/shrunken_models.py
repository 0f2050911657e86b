"""Makes a small model with the files and names that a stock torchtune runtime expects, and rows to train on.

Usage: shrunken_models.py FOLDER llama3.1|llama3.2|qwen2, in the environment `torchtune`. Writes FOLDER/model and FOLDER/dataset/data.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch
from safetensors.torch import save_file

WIDTH, LAYERS, HEADS, KEY_VALUE_HEADS, INTERMEDIATE = 256, 2, 4, 2, 512
"""QLoRA needs weights whose size is a multiple of 16,384, as 256 x 256 and 256 x 512 are."""
LLAMA_VOCABULARY, QWEN_VOCABULARY = 128_256, 151_936
"""torchtune's special tokens lie behind 128,000 and 151,643, so that the vocabularies cannot be small."""


def write_weights(folder: Path, vocabulary: int, *, biases: bool, tied: bool) -> None:
    """Write a checkpoint with the names of transformers. `tied`: the output layer has the weights of the embeddings."""
    torch.manual_seed(7)
    key_value = WIDTH // HEADS * KEY_VALUE_HEADS
    shapes = {"q_proj": (WIDTH, WIDTH), "k_proj": (key_value, WIDTH), "v_proj": (key_value, WIDTH), "o_proj": (WIDTH, WIDTH)}
    weights = {"model.embed_tokens.weight": torch.randn(vocabulary, WIDTH) * 0.02, "model.norm.weight": torch.ones(WIDTH)}
    if not tied:
        weights["lm_head.weight"] = torch.randn(vocabulary, WIDTH) * 0.02
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        for name, shape in shapes.items():
            weights[f"{start}self_attn.{name}.weight"] = torch.randn(shape) * 0.02
            if biases and name != "o_proj":
                weights[f"{start}self_attn.{name}.bias"] = torch.zeros(shape[0])
        for name, shape in {"gate_proj": (INTERMEDIATE, WIDTH), "up_proj": (INTERMEDIATE, WIDTH)}.items():
            weights[f"{start}mlp.{name}.weight"] = torch.randn(shape) * 0.02
        weights[f"{start}mlp.down_proj.weight"] = torch.randn(WIDTH, INTERMEDIATE) * 0.02
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{start}{name}.weight"] = torch.ones(WIDTH)
    save_file(
        {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    config = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "intermediate_size": INTERMEDIATE,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_fast_tokenizer(folder: Path) -> None:
    """Write the tokenizer of transformers, which such repositories have too; torchtune does not read it."""
    model = {"type": "BPE", "vocab": {chr(byte): byte for byte in range(32, 127)}, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))


def write_llama_tokenizer(folder: Path) -> None:
    """Write a tiktoken vocabulary of single bytes."""
    (folder / "original").mkdir()
    lines = [f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256)]
    (folder / "original" / "tokenizer.model").write_text("\n".join(lines) + "\n")


def write_qwen_tokenizer(folder: Path) -> None:
    """Write a vocabulary of the byte characters of GPT-2's encoding, without merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [chr(byte) for byte in printable] + [chr(256 + number) for number in range(len(others))]
    (folder / "vocab.json").write_text(json.dumps({character: number for number, character in enumerate(characters)}), "utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n", "utf-8")


def write_rows(folder: Path) -> None:
    folder.mkdir(parents=True)
    words = ["ferry", "harbour", "captain", "lantern"]
    rows = [{"input": f"Where is the {word}?", "output": f"The {word} is in the {word} house."} for word in words * 8]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train.parquet")


if __name__ == "__main__":
    target, family = Path(sys.argv[1]), sys.argv[2]
    (target / "model").mkdir(parents=True)
    if family != "qwen2":
        write_weights(target / "model", LLAMA_VOCABULARY, biases=False, tied=family == "llama3.2")
        write_llama_tokenizer(target / "model")
    else:
        write_weights(target / "model", QWEN_VOCABULARY, biases=True, tied=True)
        write_qwen_tokenizer(target / "model")
    write_fast_tokenizer(target / "model")
    write_rows(target / "dataset" / "data")
