"""Token counts of every layout and kind of tokenizer, against what TRL's trainers make of the same prepared dataset."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.optional_packages import require_packages
from support.tiny_tokenizer import CHAT, EOS, TEMPLATE, write_tokenizer

from trainwright.initializers import DatasetOptions, initialize_dataset
from trainwright.initializers.data_report.token_counts import RowRejected, count_tokens, row_text

require_packages("torch", "trl")

pytestmark = pytest.mark.medium

Row = dict[str, Any]
USER, ANSWER, OTHER = (
    {"role": role, "content": text} for role, text in (("user", " q on ü"), ("assistant", "a "), ("assistant", "b b"))
)
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1.0}}}],
}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "Ünder <b>", "parameters": {"x": {"type": "number"}}}}]
LAYOUTS: dict[str, list[Row]] = {
    "prompt-completion": [
        {"prompt": "Who on t", "completion": "he pier?"},
        {"prompt": "p", "completion": f"closed{EOS}"},
        {"prompt": "long " * 20, "completion": "c"},
        {"prompt": " ", "completion": "on"},
    ],
    "text": [{"text": "on the pier"}, {"text": f"closed{EOS}"}, {"text": " t" * 40}],
    "dates": [{"prompt": "2024-01-01", "completion": "2024-01-02"}] * 2,
    "messages": [
        {"messages": [USER, ANSWER], "chat_template_kwargs": {"thinking": True}},
        {"messages": [USER, CALL, {"role": "tool", "name": "f", "content": "1"}, ANSWER], "tools": TOOLS},
        {"messages": [{**ANSWER, "reasoning": "because"}, USER], "chat_template_kwargs": {"bos_token": "other"}},
    ],
    "chat-prompt-completion": [
        {"prompt": [USER], "completion": [ANSWER]},
        {"prompt": [USER], "completion": [CALL], "tools": json.dumps(TOOLS), "chat_template_kwargs": {"thinking": True}},
        {"prompt": [USER] * 9, "completion": [ANSWER]},
    ],
    "preference": [
        {"prompt": "p on", "chosen": " good", "rejected": " t"},
        {"prompt": "long " * 20, "chosen": "a", "rejected": f"b{EOS}"},
    ],
    "kto": [
        {"prompt": "p on", "completion": " good", "label": True},
        {"prompt": "long " * 20, "completion": "b", "label": False},
    ],
    "chat-kto": [{"prompt": [USER], "completion": [CALL], "label": good, "tools": TOOLS} for good in (True, False)],
    "implicit-preference": [{"chosen": "Q: a", "rejected": "Q: b"}, {"chosen": "p: on", "rejected": "p: other"}],
    "chat-preference": [
        {"prompt": [USER], "chosen": [ANSWER], "rejected": [OTHER], "tools": TOOLS},
        {"prompt": [USER] * 9, "chosen": [CALL], "rejected": [ANSWER]},
    ],
    "implicit-chat-preference": [{"chosen": [USER, ANSWER], "rejected": [USER, OTHER]}] * 2,
}
NAMED = [{"name": "default", "template": TEMPLATE}, {"name": "tool_use", "template": "tools " + TEMPLATE}]
TOKENIZERS: dict[str, dict[str, Any]] = {
    "BOS by the file": {},
    "nothing around": {"around": False},
    "configuration that the file overrules": {"add_bos_token": False, "add_eos_token": True},
    "extra tokens": {"additional_special_tokens": ["<user>", " on"], "image_token": "pier"},
    "added tokens": {
        "eos_token": {"__type": "AddedToken", "content": CHAT, "lstrip": False},
        "added_tokens_decoder": {"400": {"content": CHAT, "special": True, "normalized": False}},
    },
    "named templates": {"template": None, "chat_template": NAMED},
    "template in the configuration": {"template": None, "chat_template": "{% generation %}x{% endgeneration %}" + TEMPLATE},
}
MOST = 60


def prepared(rows: list[Row], folder: Path) -> list[Row]:
    """Prepare rows in the folder. Returns what it has."""
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    initialize_dataset(f"file://{folder}/rows.jsonl", folder / "out", DatasetOptions(test_fraction=0))
    return [json.loads(line) for line in (folder / "out" / "train.jsonl").read_text("utf-8").splitlines()]


def made_by_trl(folder: Path, tokenizer: Any, layout: str, max_length: int) -> list[tuple[int, int]]:
    """Return the total and the first trained token of the rows that TRL keeps."""
    from datasets import load_dataset
    from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

    loaded = load_dataset(str(folder / "out"), cache_dir=str(folder / "cache"), split="train")
    trainers = {"preference": (DPOTrainer, DPOConfig), "kto": (KTOTrainer, KTOConfig)}
    trainer, config = trainers.get(layout.rpartition("-")[2], (SFTTrainer, SFTConfig))
    arguments = config(output_dir=str(folder / "run"), use_cpu=True, bf16=False, report_to="none", max_length=max_length)
    this = SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=True, calculate_KL=False)
    rows = trainer._prepare_dataset(
        this, loaded, tokenizer, arguments, *([False, None] if trainer is SFTTrainer else []), "train"
    )
    if trainer is not SFTTrainer:
        answers = [[row[name] for name in ("chosen_ids", "rejected_ids", "completion_ids") if name in row] for row in rows]
        prompts = [len(row["prompt_ids"]) for row in rows]
        return [(prompt + max(map(len, each)), prompt) for prompt, each in zip(prompts, answers, strict=True)]
    return [(len(row["labels"]), next(at for at, label in enumerate(row["labels"]) if label != -100)) for row in rows]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_counts_are_those_of_trl(kind: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    model = write_tokenizer(tmp_path / "model", **TOKENIZERS[kind])
    tokenizer = AutoTokenizer.from_pretrained(model)
    layouts = LAYOUTS if kind == "BOS by the file" else ["prompt-completion", "messages", "chat-preference"]
    for layout in layouts:
        rows = prepared(LAYOUTS[layout], tmp_path / layout)
        counts = count_tokens(tokenizer, rows)
        assert [(each.total, each.first_trained) for each in counts] == made_by_trl(
            tmp_path / layout, tokenizer, layout, 10_000
        ), layout
        kept = made_by_trl(tmp_path / layout, tokenizer, layout, MOST)
        assert sum(not each.is_emptied(MOST) for each in counts) == len(kept), layout
    assert any(each.is_emptied(MOST) for each in count_tokens(tokenizer, LAYOUTS["prompt-completion"]))


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ tools.x.y }}",
        "{{ range(999999999) | list }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_templates_are_confined(source: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(write_tokenizer(tmp_path / "model", template=source))
    with pytest.raises(RowRejected, match="the chat template rejects the messages: "):
        print(row_text(tokenizer, {"messages": [USER]}))
