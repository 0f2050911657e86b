"""Reads the rows to evaluate: all layouts of prepared datasets that TRL's SFT training supports.
It needs neither torch nor a tokenizer, so that invalid input is rejected before these slow imports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

TEST, TRAIN = "test.jsonl", "train.jsonl"
MAX_TRAINING_ROWS = 256
"""Default maximum of rows of train.jsonl to evaluate; held-out rows have no limit."""
PROMPT_COMPLETION = "prompt-completion"
CONVERSATION = "conversational-prompt-completion"
MESSAGES = "messages"
TEXT = "text"
CONVERSATIONAL = (CONVERSATION, MESSAGES)
TEMPLATE_COLUMNS = ("tools", "chat_template_kwargs")
"""What a chat template gets besides the messages, in rows of conversations that have it."""
_COLUMNS = {
    PROMPT_COMPLETION: ("prompt", "completion"),
    CONVERSATION: ("prompt", "completion"),
    MESSAGES: ("messages",),
    TEXT: ("text",),
}

Row = dict[str, Any]
Message = dict[str, Any]


class InvalidInput(Exception):
    """An invalid file, folder or setting. The one-line message names it and the reason."""


@dataclass(frozen=True)
class RowSet:
    """Rows of one layout, with only the columns that training on this layout reads."""

    path: Path
    rows: list[Row]
    layout: str
    held_out: bool


def data_file(data: Path) -> Path:
    """Return the file to evaluate: in a prepared dataset folder test.jsonl or, if that is missing, train.jsonl.

    Raises InvalidInput for a folder with neither.
    """
    if not data.is_dir():
        return data
    for name in (TEST, TRAIN):
        if (data / name).is_file():
            return data / name
    raise InvalidInput(f"{data}: has neither {TEST} nor {TRAIN}; prepare the folder with trainwright.initializers")


def is_held_out(path: Path) -> bool:
    """Whether the rows of a data file were not used for training: true for any file but train.jsonl."""
    return path.name != TRAIN


def read_rows(data: Path, *, max_rows: int | None = None) -> RowSet:
    """Read the rows of a prepared dataset folder or of a JSON Lines file. Blank lines are skipped.

    max_rows: maximum number of rows to read.
    Raises InvalidInput for a file that cannot be read or has no rows, and for a row that is not JSON, lacks a column or has
    a different layout than the first row.
    """
    path = data_file(data)
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:  # lines end at \n only: a string may contain U+2028
            rows = list(islice(_parsed(file, path), max_rows))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    if not rows:
        raise InvalidInput(f"{path}: has no rows")
    layout = rows[0][0]
    for found, _, where in rows:
        if found != layout:
            raise InvalidInput(f"{where}: has the layout {found}, the first row has {layout}")
    return RowSet(path, [row for _, row, _ in rows], layout, is_held_out(path))


def plain_text(messages: list[Message]) -> str:
    """Return a conversation as readable text, one paragraph per message."""
    return "\n".join(f"{message['role']}: {content_of(message)}" for message in messages)


def content_of(message: Message) -> str:
    """Return the text of a message, whose content may be a string, a list of parts, or null with tool calls."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def _parsed(lines: Iterator[str], path: Path) -> Iterator[tuple[str, Row, str]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path} line {number}"
            yield (*_parse_row(line, where), where)


def _parse_row(line: str, where: str) -> tuple[str, Row]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{where}: is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise InvalidInput(f"{where}: is not JSON: nested too deeply") from error
    if not isinstance(row, dict):
        raise InvalidInput(f"{where}: is not a JSON object")
    layout = _layout_of(row, where)
    for column in _COLUMNS[layout]:
        if layout in CONVERSATIONAL:
            _check_messages(row[column], f'{where}: column "{column}"')
        elif not isinstance(row[column], str):
            raise InvalidInput(f'{where}: column "{column}" is not text')
    also = [column for column in TEMPLATE_COLUMNS if layout in CONVERSATIONAL and row.get(column)]
    return layout, {column: row[column] for column in (*_COLUMNS[layout], *also)}


def _layout_of(row: Row, where: str) -> str:
    if "prompt" in row or "completion" in row:
        for column in _COLUMNS[PROMPT_COMPLETION]:
            if column not in row:
                raise InvalidInput(f'{where}: has no column "{column}"')
        return CONVERSATION if isinstance(row["prompt"], list) else PROMPT_COMPLETION
    for layout in (MESSAGES, TEXT):
        if layout in row:
            return layout
    raise InvalidInput(f'{where}: has none of the columns "prompt" and "completion", "messages", "text"')


def _check_messages(value: Any, what: str) -> None:
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"{what} is not a list of messages")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
            raise InvalidInput(f'{what} has a message without "role" and "content"')
