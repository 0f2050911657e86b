"""Tokenizes rows exactly as TRL's SFT trainer does, so that the loss is comparable with the training loss.

Encoded rows are padded to the tensors that a model takes, and the tokens that have a loss are marked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.evaluation.rows import (
    CONVERSATION,
    CONVERSATIONAL,
    MESSAGES,
    PROMPT_COMPLETION,
    TEXT,
    InvalidInput,
    Message,
    Row,
)
from trainwright.text.chat_templates import learned_answers

if TYPE_CHECKING:
    import torch

NO_LABEL = -100  # ignored by torch's cross entropy


@dataclass(frozen=True)
class Encoded:
    """The token ids of one row. Tokens from `prompt_length` on have a loss, except the very first token.

    With `learned`, of those only the tokens for which it is true: the assistant's, where the loss is on answers.
    """

    tokens: list[int]
    prompt_length: int
    learned: list[bool] | None = None

    @property
    def first_predicted(self) -> int:
        """Position of the first token with a loss."""
        return max(self.prompt_length, 1)

    @property
    def predicted(self) -> list[int]:
        """Positions of all tokens with a loss."""
        places = range(self.first_predicted, len(self.tokens))
        return [at for at in places if self.learned is None or self.learned[at]]

    def cut(self, limit: int | None) -> Encoded:
        """Return the first tokens alone, at most `limit`."""
        return Encoded(self.tokens[:limit], self.prompt_length, None if self.learned is None else self.learned[:limit])


def encode_rows(
    tokenizer: Any, rows: Sequence[Row], *, layout: str = PROMPT_COMPLETION, limit: int | None = None, answers: str = ""
) -> list[Encoded]:
    """Tokenize rows of one layout like TRL's SFT trainer with default settings.

    Prompt and completion have a loss on the completion only, messages and text on every token. Plain text ends with the
    end-of-text token, conversations are rendered with the chat template. tokenizer: a Hugging Face tokenizer. limit: maximum
    number of tokens; longer rows are truncated. answers: the chat template that marks the assistant's answers in messages, on which
    alone the loss then is. Rows without a token that has a loss are omitted.
    Raises InvalidInput if the tokenizer lacks what the layout needs.
    """
    require_tokens(tokenizer, layout)
    encoded = []
    for row in rows:
        full = _answers(tokenizer, row, answers) if answers and layout == MESSAGES else encode_row(tokenizer, row, layout)
        if (truncated := full.cut(limit)).predicted:
            encoded.append(truncated)
    return encoded


def encode_row(tokenizer: Any, row: Row, layout: str) -> Encoded:
    """Tokenize one row, whatever its length; see `encode_rows`."""
    encode = {PROMPT_COMPLETION: _completion, CONVERSATION: _conversation, MESSAGES: _messages, TEXT: _text}[layout]
    return encode(tokenizer, row)


def require_tokens(tokenizer: Any, layout: str) -> None:
    """Raise InvalidInput if the tokenizer has no chat template for a conversational layout, or no end-of-text token for text."""
    if layout in CONVERSATIONAL and not tokenizer.chat_template:
        raise InvalidInput(
            f"{tokenizer.name_or_path}: the tokenizer has no chat template, but the rows contain messages ({layout}); "
            "use a model with a chat template, or a dataset of text"
        )
    if layout not in CONVERSATIONAL and not tokenizer.eos_token:
        raise InvalidInput(f"{tokenizer.name_or_path}: the tokenizer has no end-of-text token (eos_token)")


def digest_of(rows: Sequence[Encoded], besides: object = None) -> str:
    """Name what is measured: the tokens of all rows and which of them have a loss. Losses of other tokens are not comparable.

    `besides` is what else the loss depends on.
    """
    digest = hashlib.sha256(b"" if besides is None else json.dumps(besides).encode() + b"\n")
    for row in rows:
        learned = [] if row.learned is None else [row.predicted]
        digest.update(json.dumps([row.tokens, row.first_predicted, *learned]).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def template_options(row: Row) -> dict[str, Any]:
    """Return what the chat template gets besides a row's messages, as TRL passes it. Raises InvalidInput."""
    tools, more = row.get("tools"), row.get("chat_template_kwargs") or {}
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise InvalidInput(f'column "tools" is text, but not JSON: {error}; it begins {row["tools"][:80]!r}') from error
    return {"tools": tools or None, **more}


def render(
    tokenizer: Any, messages: Sequence[Message], options: Mapping[str, Any], *, add_generation_prompt: bool = False
) -> list[int]:
    """Return the token ids of a conversation; `options` are the row's `template_options`.

    Raises InvalidInput if the chat template rejects it.
    """
    with _rendering(tokenizer, messages):
        rendered = tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=True, add_generation_prompt=add_generation_prompt, **options
        )
    return list(rendered["input_ids"])


@contextmanager
def _rendering(tokenizer: Any, messages: Sequence[Message]) -> Iterator[None]:
    from jinja2 import TemplateError  # transformers renders templates with it

    try:
        yield
    except TemplateError as error:
        raise InvalidInput(
            f"the chat template of {tokenizer.name_or_path} rejects the messages {messages!r:.200}: {error}"
        ) from error


def _completion(tokenizer: Any, row: Row) -> Encoded:
    prompt = tokenizer(row["prompt"])["input_ids"]
    return _split_at_completion(prompt, tokenizer(row["prompt"] + _with_eos(tokenizer, row["completion"]))["input_ids"])


def _conversation(tokenizer: Any, row: Row) -> Encoded:
    options = template_options(row)
    prompt = render(tokenizer, row["prompt"], options, add_generation_prompt=True)
    return _split_at_completion(prompt, render(tokenizer, [*row["prompt"], *row["completion"]], options))


def _messages(tokenizer: Any, row: Row) -> Encoded:
    return Encoded(render(tokenizer, row["messages"], template_options(row)), 0)


def _answers(tokenizer: Any, row: Row, template: str) -> Encoded:
    with _rendering(tokenizer, row["messages"]):
        tokens, learned = learned_answers(tokenizer, row["messages"], template, **template_options(row))
    return Encoded(tokens, 0, learned)


def _text(tokenizer: Any, row: Row) -> Encoded:
    return Encoded(tokenizer(_with_eos(tokenizer, row["text"]))["input_ids"], 0)


def _with_eos(tokenizer: Any, text: str) -> str:
    return text if text.endswith(tokenizer.eos_token) else text + tokenizer.eos_token


def _split_at_completion(prompt: list[int], tokens: list[int]) -> Encoded:
    """The completion starts where the tokens differ from those of the prompt alone: tokens may merge across the boundary."""
    common = next((at for at, pair in enumerate(zip(prompt, tokens, strict=False)) if pair[0] != pair[1]), None)
    return Encoded(tokens, min(len(prompt), len(tokens)) if common is None else common)


def padded(batch: Sequence[Encoded]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids, attention mask and labels, padded on the right, with shape (rows, longest row)."""
    import torch

    shape = (len(batch), max(len(row.tokens) for row in batch))
    tokens, attention = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, NO_LABEL)
    for index, row in enumerate(batch):
        length = len(row.tokens)
        tokens[index, :length] = torch.tensor(row.tokens)
        attention[index, :length] = 1
        predicted = row.predicted
        labels[index, predicted] = tokens[index, predicted]
    return tokens, attention, labels
