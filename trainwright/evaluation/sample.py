"""The sample: a prompt that the base model and the fine-tuned one complete, with the expected completion."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        return _messages_prompt(row["messages"], template_options(row))
    return Prompt(row["text"], full_text=row["text"])


def _is_good(row: Row) -> bool:
    return bool(row.get(LABEL, True))


def _messages_prompt(messages: list[Message], options: dict[str, Any]) -> Prompt:
    """Return all messages before the last answer; the full conversation if it has no answer, or nothing before it."""
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers or answers[-1] == 0:
        return Prompt(plain_text(messages), None, messages, options=options)
    before, answer = messages[: answers[-1]], messages[answers[-1]]
    return Prompt(plain_text(before), content_of(answer), before, options=options)


def _is_same_prompt(known: Prompt, prompt: str) -> bool:
    """Whether a row's prompt equals the custom one: the same text, or a single message with that text."""
    if known.messages is not None:
        return known.text == prompt or (len(known.messages) == 1 and content_of(known.messages[0]) == prompt)
    return known.text == prompt
