"""Rows as token numbers, exactly as TRL's SFT trainer prepares them, so that the loss here is the loss of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.evaluation.rows import (
    CONVERSATION,
    CONVERSATIONAL,
    MESSAGES,
    PROMPT_COMPLETION,
    TEXT,
    BadInput,
    Message,
    Row,
)


@dataclass(frozen=True)
class Encoded:
    """One row as token numbers. Tokens from `prompt_length` on have loss; the first token of all cannot be predicted."""

    tokens: list[int]
    prompt_length: int

    @property
    def first_predicted(self) -> int:
        """Position of the first token that counts for the loss."""
        return max(self.prompt_length, 1)


def encode_rows(
    tokenizer: Any, rows: Sequence[Row], *, layout: str = PROMPT_COMPLETION, limit: int | None = None
) -> list[Encoded]:
    """Tokenize rows of one layout as TRL's SFT trainer does with its default settings.

    Prompt and completion have loss on the completion only, messages and text on every token. Plain text is closed by the
    end-of-text token, conversations are rendered by the chat template. tokenizer: a Hugging Face tokenizer. limit: longest
    sequence, tokens; what is beyond it is cut off. Rows without a token that counts are left out.
    Raises BadInput when the tokenizer lacks what the layout needs.
    """
    require_tokens(tokenizer, layout)
    encode = {PROMPT_COMPLETION: _completion, CONVERSATION: _conversation, MESSAGES: _messages, TEXT: _text}[layout]
    encoded = []
    for row in rows:
        whole = encode(tokenizer, row)
        cut = Encoded(whole.tokens[:limit], whole.prompt_length)
        if len(cut.tokens) > cut.first_predicted:
            encoded.append(cut)
    return encoded


def require_tokens(tokenizer: Any, layout: str) -> None:
    """Raises BadInput when the tokenizer has no chat template for a conversational layout, or no end-of-text token for a plain one."""
    if layout in CONVERSATIONAL and not tokenizer.chat_template:
        raise BadInput(
            f"{tokenizer.name_or_path}: the tokenizer has no chat template, and the rows hold messages ({layout}); "
            "use a model with a chat template, or a dataset of text"
        )
    if layout not in CONVERSATIONAL and not tokenizer.eos_token:
        raise BadInput(f"{tokenizer.name_or_path}: the tokenizer has no end-of-text token (eos_token)")


def render(tokenizer: Any, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> list[int]:
    """A conversation as token numbers. Raises BadInput when the chat template refuses it."""
    from jinja2 import TemplateError  # transformers renders templates with it

    try:
        rendered = tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=True, add_generation_prompt=add_generation_prompt
        )
    except TemplateError as error:
        raise BadInput(
            f"the chat template of {tokenizer.name_or_path} refuses the messages {messages!r:.200}: {error}"
        ) from error
    return list(rendered["input_ids"])


def _completion(tokenizer: Any, row: Row) -> Encoded:
    prompt = tokenizer(row["prompt"])["input_ids"]
    return _after(prompt, tokenizer(row["prompt"] + _closed(tokenizer, row["completion"]))["input_ids"])


def _conversation(tokenizer: Any, row: Row) -> Encoded:
    prompt = render(tokenizer, row["prompt"], add_generation_prompt=True)
    return _after(prompt, render(tokenizer, [*row["prompt"], *row["completion"]]))


def _messages(tokenizer: Any, row: Row) -> Encoded:
    return Encoded(render(tokenizer, row["messages"]), 0)


def _text(tokenizer: Any, row: Row) -> Encoded:
    return Encoded(tokenizer(_closed(tokenizer, row["text"]))["input_ids"], 0)


def _closed(tokenizer: Any, text: str) -> str:
    return text if text.endswith(tokenizer.eos_token) else text + tokenizer.eos_token


def _after(prompt: list[int], tokens: list[int]) -> Encoded:
    """The completion begins where the prompt alone and the whole diverge: tokens may merge across the boundary."""
    shared = next((at for at, pair in enumerate(zip(prompt, tokens, strict=False)) if pair[0] != pair[1]), None)
    return Encoded(tokens, min(len(prompt), len(tokens)) if shared is None else shared)
