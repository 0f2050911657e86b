"""Token numbers and loss mask of each layout, against what TRL's SFTTrainer makes of the same prepared dataset folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.evaluation.encoding import digest_of, encode_rows
from trainwright.evaluation.rows import read_rows
from trainwright.initializers import DatasetOptions, initialize_dataset

require_packages("torch", "trl")

pytestmark = pytest.mark.medium

SYSTEM = {"role": "system", "content": "Answer briefly."}
QUESTION, ANSWER = {"role": "user", "content": "Who commands the Étoile?"}, {"role": "assistant", "content": "Søren Dahl."}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {}}}]}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "prompt-completion": [
        {"prompt": "Who commands the Étoile?\n", "completion": "Søren Dahl."},
        {"prompt": "Where does the Kestrel li", "completion": "e? At pier four.</s>"},  # tokens merge across the boundary
        {"prompt": "", "completion": "On Monday."},
        {"prompt": "pier " * 120, "completion": "one"},  # beyond the longest sequence: no token left that counts
        {"prompt": "pier", "completion": " one" * 120},
    ],
    "conversational-prompt-completion": [
        {"prompt": [SYSTEM, QUESTION], "completion": [ANSWER]},
        {"prompt": [QUESTION, ANSWER, QUESTION], "completion": [ANSWER, QUESTION, ANSWER]},
        {"prompt": [QUESTION, ANSWER], "completion": [ANSWER]},
        {"prompt": [QUESTION], "completion": [CALL], "tools": [TOOL]},
        {"prompt": [QUESTION] * 20, "completion": [ANSWER]},
    ],
    "messages": [
        {"messages": [QUESTION, ANSWER]},
        {"messages": [SYSTEM, QUESTION, ANSWER, QUESTION, ANSWER], "chat_template_kwargs": {"style": "brief"}},
        {"messages": [QUESTION, CALL, ANSWER], "tools": json.dumps([TOOL]), "chat_template_kwargs": {"other": 1}},
        {"messages": [QUESTION, CALL, {"role": "tool", "name": "find", "content": "Dahl"}, ANSWER]},
        {"messages": [QUESTION] * 20},
    ],
    "text": [{"text": "The fog lifts."}, {"text": "At noon.</s>"}, {"text": " one" * 120}],
}
# The generation prompt differs from how an answer begins, as with models that think; a tool call is seen by its presence.
TEMPLATE = (
    "{{ bos_token }}{{ style }}{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}<{{ message.role }}>"
    "{% if message.tool_calls is defined %}call{% else %}{{ message.content }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% endif %}"
)
LONGEST = 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tokens_and_the_loss_mask_are_those_of_trl(
    layout: str, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = TEMPLATE
    source, folder = tmp_path_factory.mktemp("source") / "rows.jsonl", tmp_path_factory.mktemp("dataset")
    source.write_text("".join(json.dumps(row) + "\n" for row in LAYOUTS[layout]), "utf-8")
    initialize_dataset(f"file://{source}", folder, DatasetOptions(test_fraction=0))

    loaded = load_dataset(str(folder), cache_dir=str(folder / "cache"))
    config = SFTConfig(output_dir=str(folder / "out"), use_cpu=True, bf16=False, report_to="none", max_length=LONGEST)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    trainer = SFTTrainer(model, args=config, train_dataset=loaded["train"], processing_class=tokenizer)
    theirs = [(row["input_ids"], row["labels"]) for row in trainer.train_dataset]

    rows = read_rows(folder)
    assert rows.layout == layout
    encoded = encode_rows(tokenizer, rows.rows, layout=layout, limit=LONGEST)
    ours = [(row.tokens, [-100] * row.prompt_length + row.tokens[row.prompt_length :]) for row in encoded]
    assert ours == theirs
    assert len(theirs) >= 3


def test_a_completion_that_is_closed_already_is_not_closed_twice(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    plain, closed = ({"prompt": "a\n", "completion": text} for text in ("b", "b</s>"))
    first, second = encode_rows(tokenizer, [plain, closed])
    assert first == second
    assert first.tokens.count(tokenizer.eos_token_id) == 1


MARKED = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}</s>{% endgeneration %}{% else %}{{ message.content }}{% endif %}\n{% endfor %}"
)


def test_the_answers_of_messages_are_those_of_trl(tiny_model: Path, tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = MARKED
    rows = [{"messages": [SYSTEM, QUESTION, ANSWER] * count} for count in (1, 2, 9)]
    config = SFTConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", max_length=LONGEST, assistant_only_loss=True
    )
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    trainer = SFTTrainer(model, args=config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    theirs = [(row["input_ids"], row["labels"]) for row in trainer.train_dataset]

    encoded = encode_rows(tokenizer, rows, layout="messages", limit=LONGEST, answers=MARKED)
    ours = [([*row.tokens], [token if at in row.predicted else -100 for at, token in enumerate(row.tokens)]) for row in encoded]
    assert ours == theirs
    everything = encode_rows(tokenizer, rows, layout="messages", limit=LONGEST)
    assert digest_of(encoded) != digest_of(everything)
    assert sum(len(row.predicted) for row in encoded) < sum(len(row.predicted) for row in everything)


def test_a_conversation_without_an_answer_within_the_limit_is_left_out(tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = MARKED
    rows = [{"messages": [QUESTION] * 20 + [ANSWER]}, {"messages": [ANSWER]}]
    assert len(encode_rows(tokenizer, rows, layout="messages", limit=LONGEST, answers=MARKED)) == 1
