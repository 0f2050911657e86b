"""The losses before and after of every layout, to six digits, against those that transformers and PEFT alone compute row by row."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.evaluation import program

require_packages("torch", "transformers", "peft")

pytestmark = pytest.mark.medium
TEMPLATE = (
    "{{ bos_token }}{% for tool in tools or [] %}<tool>{{ tool | tojson }}{% endfor %}{% if mood is defined %}<{{ mood }}>{% endif %}"
    "{% for message in messages %}<{{ message.role }}>"
    "{% for call in message.tool_calls or [] %}{{ call | tojson }}{% endfor %}{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
TOOL = {"type": "function", "function": {"name": "find", "description": "Finds a ship.", "parameters": {"type": "object"}}}
QUESTION, ANSWER = {"role": "user", "content": "Who commands the Étoile?"}, {"role": "assistant", "content": "Søren Dahl."}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {"a": 1}}}],
}
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "prompt and completion": [
        {"prompt": "Who commands the Étoile?\n", "completion": "Søren Dahl."},
        {"prompt": "Where is the Kestrel?\n", "completion": "At pier four, since Monday."},
    ],
    "conversations": [
        {"prompt": [QUESTION], "completion": [ANSWER]},
        {"prompt": [QUESTION, ANSWER, QUESTION], "completion": [ANSWER]},
    ],
    "messages": [{"messages": [QUESTION, ANSWER]}, {"messages": [QUESTION, ANSWER, QUESTION, ANSWER]}],
    "tool calls": [
        {"prompt": [QUESTION], "completion": [CALL], "tools": [TOOL]},
        {"prompt": [QUESTION], "completion": [CALL], "tools": json.dumps([TOOL, TOOL])},
        {"prompt": [QUESTION], "completion": [ANSWER], "chat_template_kwargs": {"mood": "calm"}},
    ],
    "text": [{"text": "The fog lifts at noon."}, {"text": "The Juniper arrives on Monday, with the tide."}],
}


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a model with a chat template, and of an adapter for it whose weights are not zero."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, adapter = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("adapter")
    tokenizer, model = AutoTokenizer.from_pretrained(tiny_model), AutoModelForCausalLM.from_pretrained(tiny_model)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(base)
    model.save_pretrained(base)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
        get_peft_model(model, config).save_pretrained(adapter)
    return base, adapter


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_are_those_of_transformers_and_peft(layout: str, models: tuple[Path, Path], tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, adapter = models
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LAYOUTS[layout]), "utf-8")
    result = program.evaluate(base, adapter, tmp_path, max_new_tokens=1)

    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    labelled = [tokens_and_labels(tokenizer, row) for row in LAYOUTS[layout]]
    assert result["before"]["loss"] == pytest.approx(mean_loss(model, labelled), rel=1e-6)
    tuned = PeftModel.from_pretrained(model, adapter)
    assert result["after"]["loss"] == pytest.approx(mean_loss(tuned, labelled), rel=1e-6)
    assert result["after"]["loss"] != pytest.approx(result["before"]["loss"], rel=1e-2)


def tokens_and_labels(tokenizer: Any, row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The tokens of a row, and the labels: only completions have a loss where there are prompts."""
    prompt: list[int] = []
    if isinstance(row.get("prompt"), str):
        prompt = tokenizer(row["prompt"])["input_ids"]
        tokens = tokenizer(row["prompt"] + row["completion"] + tokenizer.eos_token)["input_ids"]
    elif "text" in row:
        tokens = tokenizer(row["text"] + tokenizer.eos_token)["input_ids"]
    else:
        tools = row.get("tools")
        more: dict[str, Any] = {"tools": json.loads(tools) if isinstance(tools, str) else tools, "return_dict": True}
        more |= row.get("chat_template_kwargs", {})
        if "prompt" in row:
            prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, **more)["input_ids"]
        messages = row["prompt"] + row["completion"] if "prompt" in row else row["messages"]
        tokens = tokenizer.apply_chat_template(messages, **more)["input_ids"]
    assert tokens[: len(prompt)] == prompt, "the expectation holds where the prompt's tokens begin the row's"
    return tokens, [-100] * len(prompt) + tokens[len(prompt) :]


def mean_loss(model: Any, rows: list[tuple[list[int], list[int]]]) -> float:
    """The loss that the model itself returns for each row, weighted by the tokens that have one; the first token never has."""
    import torch

    total = count = 0.0
    for tokens, labels in rows:
        with torch.inference_mode():
            loss = model(input_ids=torch.tensor([tokens]), labels=torch.tensor([labels])).loss.item()
        counted = sum(label != -100 for label in labels[1:])
        total, count = total + loss * counted, count + counted
    return total / count
