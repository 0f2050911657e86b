"""The sample: one prompt that the base model and the fine-tuned one both continue, with the text that is expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.evaluation.encoding import render
from trainwright.evaluation.rows import (
    CONVERSATION,
    CONVERSATIONAL,
    MESSAGES,
    PROMPT_COMPLETION,
    BadInput,
    Message,
    Row,
    RowSet,
    content_of,
    plain_text,
)

TEXT_PROMPT_TOKENS = 64
"""Most tokens of a text that are given as the prompt of a sample; of a shorter text, half."""


@dataclass(frozen=True)
class Prompt:
    """What is to be continued: a text, messages to render, or the beginning of a text; and the continuation if known."""

    text: str
    expected: str | None = None
    messages: list[Message] | None = None
    whole_text: str | None = None


@dataclass(frozen=True)
class Sample:
    """The prompt as people read it and as the model gets it."""

    prompt: str
    expected: str | None
    tokens: list[int]


def choose_prompt(rows: RowSet, row: int, prompt: str | None) -> Prompt:
    """The prompt of a row, or a prompt of the caller's own. What is expected is known only of a row's prompt.

    Raises BadInput when there is no such row.
    """
    if prompt is not None:
        known = next((made for made in (_of_row(rows.layout, each) for each in rows.rows) if _asks(made, prompt)), None)
        if known is not None:
            return known
        messages = [{"role": "user", "content": prompt}] if rows.layout in CONVERSATIONAL else None
        return Prompt(prompt, messages=messages)
    if row >= len(rows.rows):
        raise BadInput(f"{rows.path}: has {len(rows.rows)} rows, so there is no sample row {row}")
    return _of_row(rows.layout, rows.rows[row])


def encode_sample(tokenizer: Any, prompt: Prompt) -> Sample:
    """The prompt as token numbers. Raises BadInput when the chat template refuses the messages."""
    if prompt.messages is not None:
        last_is_open = prompt.messages[-1]["role"] != "assistant"
        return Sample(prompt.text, prompt.expected, render(tokenizer, prompt.messages, add_generation_prompt=last_is_open))
    if prompt.whole_text is None:
        return Sample(prompt.text, prompt.expected, tokenizer(prompt.text)["input_ids"])
    tokens = tokenizer(prompt.whole_text)["input_ids"]
    given = tokens[: max(min(len(tokens) // 2, TEXT_PROMPT_TOKENS), 1)]
    beginning = tokenizer.decode(given, skip_special_tokens=True)
    return Sample(beginning, tokenizer.decode(tokens[len(given) :], skip_special_tokens=True), given)


def _of_row(layout: str, row: Row) -> Prompt:
    if layout == PROMPT_COMPLETION:
        return Prompt(row["prompt"], row["completion"])
    if layout == CONVERSATION:
        return Prompt(plain_text(row["prompt"]), "\n".join(map(content_of, row["completion"])), row["prompt"])
    if layout == MESSAGES:
        return _of_messages(row["messages"])
    return Prompt(row["text"], whole_text=row["text"])


def _of_messages(messages: list[Message]) -> Prompt:
    """All up to the last answer; a conversation without an answer, or with nothing before it, is given whole."""
    answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    if not answers or answers[-1] == 0:
        return Prompt(plain_text(messages), None, messages)
    return Prompt(plain_text(messages[: answers[-1]]), content_of(messages[answers[-1]]), messages[: answers[-1]])


def _asks(known: Prompt, prompt: str) -> bool:
    """Whether a row's prompt is the caller's: the same text, or one message of the user's with it."""
    if known.messages is not None:
        return known.text == prompt or (len(known.messages) == 1 and content_of(known.messages[0]) == prompt)
    return known.text == prompt
