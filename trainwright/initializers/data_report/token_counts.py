"""Counts the tokens of rows as TRL makes them, with its EOS, its arguments of chat templates, and the first trained token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.initializers.data_report.chat_template import TemplateRejects
from trainwright.initializers.data_report.model_tokenizer import ModelTokenizer
from trainwright.initializers.tool_calls import TEMPLATE_KWARGS, TOOLS

Row = dict[str, Any]
_BATCH = 256


@dataclass(frozen=True)
class RowTokens:
    """`total` counts all tokens of a row, of a pair of answers with the longer one; training learns those from `first_trained` on."""

    total: int
    first_trained: int = 0

    def is_cut(self, max_length: int) -> bool:
        return 0 < max_length < self.total

    def is_emptied(self, max_length: int) -> bool:
        """Whether nothing is left to learn from: TRL drops the row."""
        return self.first_trained >= min(self.total, max_length or self.total)


def count_tokens(tokenizer: ModelTokenizer, rows: Sequence[Row]) -> list[RowTokens]:
    """Count the tokens of prepared rows. Raises RowRejected."""
    counts: list[RowTokens] = []
    for start in range(0, len(rows), _BATCH):
        texts = [_texts(tokenizer, row, start + index) for index, row in enumerate(rows[start : start + _BATCH])]
        is_chat = [is_conversational(row) for row in rows[start : start + _BATCH]]
        counts += _counted(tokenizer, texts, is_chat)
    return counts


def is_conversational(row: Row) -> bool:
    """Whether a row has lists of messages."""
    return any(isinstance(row.get(column), list) for column in ("prompt", "messages", "chosen"))


def row_text(tokenizer: ModelTokenizer, row: Row) -> str:
    """Return a row as the training sees it, of two answers the chosen one. Raises RowRejected."""
    texts = _texts(tokenizer, row, 0)
    return tokenizer.decode(tokenizer.encode(texts[:2][-1:], add_special_tokens=not is_conversational(row))[0])


class RowRejected(TemplateRejects):
    """The chat template rejects the row with the index `row`."""

    def __init__(self, row: int, error: TemplateRejects):
        super().__init__(str(error))
        self.row = row


def _counted(tokenizer: ModelTokenizer, texts: list[list[str]], is_chat: list[bool]) -> list[RowTokens]:
    """Encode the texts of all rows at once."""
    ids: dict[bool, Any] = {}
    for chat in {*is_chat}:
        flat = [text for row, kind in zip(texts, is_chat, strict=True) if kind is chat for text in row]
        ids[chat] = iter(tokenizer.encode(flat, add_special_tokens=not chat))
    return [_row_tokens([next(ids[chat]) for _ in row]) for row, chat in zip(texts, is_chat, strict=True)]


def _row_tokens(ids: list[list[int]]) -> RowTokens:
    """Return the counts of a text alone, or of a prompt and of the prompt with one answer or two."""
    if len(ids) == 1:
        return RowTokens(len(ids[0]))
    prompt, *answered = ids
    return RowTokens(max(map(len, answered)), min(_common(prompt, each) for each in answered))


def _common(one: list[int], other: list[int]) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))


def _texts(tokenizer: ModelTokenizer, row: Row, index: int) -> list[str]:
    """Return the whole text of a row, or its prompt and the prompt with each answer."""
    try:
        return _chat_texts(tokenizer, row) if is_conversational(row) else _plain_texts(tokenizer, row)
    except TemplateRejects as error:
        raise RowRejected(index, error) from error


def _plain_texts(tokenizer: ModelTokenizer, row: Row) -> list[str]:
    if "text" in row:
        return [_closed(row["text"], tokenizer)]
    prompt, answers = _split(row)
    return [prompt, *(prompt + _closed(answer, tokenizer) for answer in answers)]


def _chat_texts(tokenizer: ModelTokenizer, row: Row) -> list[str]:
    tools = json.loads(row[TOOLS]) if isinstance(row.get(TOOLS), str) else row.get(TOOLS)
    template, settings = tokenizer.chat_template(tools), row.get(TEMPLATE_KWARGS) or {}
    if "messages" in row:
        return [template.render(row["messages"], tools, **settings)]
    prompt, answers = _split(row)
    rendered = [template.render(prompt + answer, tools, **settings) for answer in answers]
    return [template.render(prompt, tools, generation=True, **settings), *rendered]


def _split(row: Row) -> tuple[Any, list[Any]]:
    """Return the prompt and the answers; without a prompt, it is what both answers begin with, as TRL finds it."""
    if "completion" in row:
        return row["prompt"], [row["completion"]]
    chosen, rejected = row["chosen"], row["rejected"]
    if "prompt" in row:
        return row["prompt"], [chosen, rejected]
    same = next((at for at, pair in enumerate(zip(chosen, rejected, strict=False)) if pair[0] != pair[1]), None)
    if same is None:  # one is the beginning of the other
        same = min(len(chosen), len(rejected)) - 1
    if same and chosen[same - 1] == " ":
        same -= 1
    return chosen[:same], [chosen[same:], rejected[same:]]


def _closed(text: str, tokenizer: ModelTokenizer) -> str:
    return text if text.endswith(tokenizer.eos) else text + tokenizer.eos
