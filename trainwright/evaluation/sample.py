"""Samples: prompts of the rows, with the expected completions, and what a model completes.

A model completes them as it is exported, with its generation config and the tokens that end its answers, but greedily, so that they
are the same each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.evaluation.encoding import render, template_options
from trainwright.evaluation.rows import (
    CONVERSATION,
    CONVERSATIONAL,
    LABEL,
    MESSAGES,
    PROMPT_COMPLETION,
    InvalidInput,
    Message,
    Row,
    RowSet,
    content_of,
    plain_text,
)

TEXT_PROMPT_TOKENS = 64
"""Maximum number of tokens of a text to use as the prompt; of a shorter text, half."""
SAMPLES = 8
"""Rows that a model completes, to see whether it stops."""
_MAX_TOKENS = 256
_CONFIG = "generation_config.json"
_KEPT = (
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
    "min_new_tokens",
)
"""Of an exported generation config, what changes a greedy completion."""


@dataclass(frozen=True)
class Prompt:
    """The prompt to complete: a text, messages to render, or the beginning of a text; and the expected completion if known."""

    text: str
    expected: str | None = None
    messages: list[Message] | None = None
    full_text: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """What the chat template gets besides the messages."""


@dataclass(frozen=True)
class Sample:
    """The prompt as readable text and as token ids."""

    prompt: str
    expected: str | None
    tokens: list[int]


def choose_prompt(rows: RowSet, row: int, prompt: str | None) -> Prompt:
    """Return the prompt of a row, or a custom prompt. The expected completion is known only for a prompt in the rows.

    Raises InvalidInput if there is no such row.
    """
    if prompt is not None:
        candidates = (_row_prompt(rows.layout, each) for each in rows.rows)
        known = next((candidate for candidate in candidates if _is_same_prompt(candidate, prompt)), None)
        if known is not None:
            return known
        messages = [{"role": "user", "content": prompt}] if rows.layout in CONVERSATIONAL else None
        return Prompt(prompt, messages=messages)
    if row >= len(rows.rows):
        raise InvalidInput(f"{rows.path}: has {len(rows.rows)} rows, so there is no sample row {row}")
    return _row_prompt(rows.layout, rows.rows[row])


def more_prompts(rows: RowSet, row: int, count: int) -> list[Prompt]:
    """Return the prompts of up to `count` other rows, those after the `row` first, then those before it."""
    others = [*range(row + 1, len(rows.rows)), *range(min(row, len(rows.rows)))]
    return [_row_prompt(rows.layout, rows.rows[at]) for at in others[:count]]


def encode_sample(tokenizer: Any, prompt: Prompt) -> Sample:
    """Tokenize the prompt. Raises InvalidInput if the chat template rejects the messages."""
    if prompt.messages is not None:
        last_is_open = prompt.messages[-1]["role"] != "assistant"
        tokens = render(tokenizer, prompt.messages, prompt.options, add_generation_prompt=last_is_open)
        return Sample(prompt.text, prompt.expected, tokens)
    if prompt.full_text is None:
        return Sample(prompt.text, prompt.expected, tokenizer(prompt.text)["input_ids"])
    tokens = tokenizer(prompt.full_text)["input_ids"]
    given = tokens[: max(min(len(tokens) // 2, TEXT_PROMPT_TOKENS), 1)]
    beginning = tokenizer.decode(given, skip_special_tokens=True)
    return Sample(beginning, tokenizer.decode(tokens[len(given) :], skip_special_tokens=True), given)


def _row_prompt(layout: str, row: Row) -> Prompt:
    if layout == PROMPT_COMPLETION:
        return Prompt(row["prompt"], row["completion"] if _is_good(row) else None)
    if layout == CONVERSATION:
        expected = "\n".join(map(content_of, row["completion"])) if _is_good(row) else None
        return Prompt(plain_text(row["prompt"]), expected, row["prompt"], options=template_options(row))
    if layout == MESSAGES:
        messages = row["messages"]
        options = template_options(row)
        answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        if not answers or answers[-1] == 0:  # without a question and an answer, the whole conversation is the prompt
            return Prompt(plain_text(messages), None, messages, options=options)
        before, answer = messages[: answers[-1]], messages[answers[-1]]
        return Prompt(plain_text(before), content_of(answer), before, options=options)
    return Prompt(row["text"], full_text=row["text"])


def _is_good(row: Row) -> bool:
    return bool(row.get(LABEL, True))


def _is_same_prompt(known: Prompt, prompt: str) -> bool:
    """Whether a row's prompt equals the custom one: the same text, or a single message with that text."""
    if known.messages is not None:
        return known.text == prompt or (len(known.messages) == 1 and content_of(known.messages[0]) == prompt)
    return known.text == prompt


@dataclass(frozen=True)
class Completion:
    """What was generated after a prompt: its text, its tokens with the one that ends it, and whether one did."""

    text: str
    tokens: int
    ended: bool


def ended_counts(completions: Sequence[Completion]) -> dict[str, int]:
    """Return how many samples of a model ended before the limit of tokens, and the tokens of all of them."""
    return {"ended": sum(each.ended for each in completions), "tokens": sum(each.tokens for each in completions)}


def token_limit(samples: Sequence[Sample], tokenizer: Any, shown: int) -> int:
    """Return how many tokens a sample may have: twice those of the longest expected answer, `shown` ones or more."""
    expected = [tokenizer(each.expected)["input_ids"] for each in samples if each.expected]
    return max(shown, min(2 * max(map(len, expected), default=0) + 16, _MAX_TOKENS))


def exported_config(model: Any, checkpoint: Path, tokenizer: Any) -> Any:
    """Return the generation config of a fine-tuned model: that of the export, else that of its base with the end token of training.

    `model` has the base's config if the checkpoint is an adapter, its own otherwise. `tokenizer` is that of the training.
    """
    from transformers import GenerationConfig

    if (checkpoint / _CONFIG).is_file():
        try:
            return _checked(GenerationConfig.from_pretrained(checkpoint))
        except Exception as error:  # of any value in a file of others
            raise InvalidInput(f"{checkpoint / _CONFIG} cannot be used: {str(error)[:200]}") from error
    config = GenerationConfig(**model.generation_config.to_diff_dict())
    ends = end_tokens(config, tokenizer)
    config.eos_token_id = ends if tokenizer.eos_token_id in ends else [tokenizer.eos_token_id, *ends]
    return config


def _checked(config: Any) -> Any:
    """Return a generation config in whose place generation would not fail later. Raises TypeError, ValueError."""
    ends, padding = config.eos_token_id, config.pad_token_id
    numbers = [*(ends if isinstance(ends, list) else [ends]), padding]
    if not all(number is None or type(number) is int for number in numbers):
        raise TypeError(f"eos_token_id {ends!r:.60} and pad_token_id {padding!r:.60} are ids of tokens")
    _greedy(config, [], 0, 1)
    return config


def _greedy(config: Any, ends: list[int], padding: int, max_new_tokens: int) -> Any:
    """Return a config that generates as another one, but greedily."""
    from transformers import GenerationConfig

    kept = {name: getattr(config, name) for name in _KEPT if getattr(config, name, None) is not None}
    return GenerationConfig(
        do_sample=False, max_new_tokens=max_new_tokens, eos_token_id=ends or None, pad_token_id=padding, **kept
    )


def end_tokens(config: Any, tokenizer: Any) -> list[int]:
    """Return the ids at which generation ends."""
    given = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
    return list(given) if isinstance(given, list | tuple) else [] if given is None else [given]


def complete(
    model: Any, tokenizer: Any, samples: Sequence[Sample], config: Any, *, max_new_tokens: int, shown: int, batch_size: int
) -> list[Completion]:
    """Complete prompts greedily with a generation config, each up to its end token or `max_new_tokens`.

    Texts have the first `shown` tokens. Prompts of a batch are padded on the left.
    """
    import torch

    ends = end_tokens(config, tokenizer)
    padding = next((each for each in (tokenizer.pad_token_id, config.pad_token_id, *ends) if isinstance(each, int)), 0)
    greedy = _greedy(config, ends, padding, max_new_tokens)
    found = []
    model.eval()
    for first in range(0, len(samples), batch_size):
        batch = samples[first : first + batch_size]
        longest = max(len(each.tokens) for each in batch)
        tokens = torch.tensor([[padding] * (longest - len(each.tokens)) + each.tokens for each in batch], device=model.device)
        attention = torch.tensor(
            [[0] * (longest - len(each.tokens)) + [1] * len(each.tokens) for each in batch], device=model.device
        )
        with torch.inference_mode():
            generated = model.generate(input_ids=tokens, attention_mask=attention, generation_config=greedy)
        for row in generated[:, longest:].tolist():
            end = next((at for at, token in enumerate(row) if token in ends), None)
            text = tokenizer.decode(row[:end][:shown], skip_special_tokens=True).strip()
            found.append(Completion(str(text), len(row) if end is None else end + 1, end is not None))
    return found
