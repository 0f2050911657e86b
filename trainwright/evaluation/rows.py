"""The rows to evaluate on: everything that TRL's SFT training reads from a prepared dataset, as plain Python values.
Nothing here needs torch or a tokenizer, so bad input is refused before seconds of imports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

TEST, TRAIN = "test.jsonl", "train.jsonl"
TRAINING_ROWS = 256
"""Most rows of train.jsonl that are measured by default; held-out rows are all measured."""
PROMPT_COMPLETION = "prompt-completion"
CONVERSATION = "conversational-prompt-completion"
MESSAGES = "messages"
TEXT = "text"
CONVERSATIONAL = (CONVERSATION, MESSAGES)
_COLUMNS = {
    PROMPT_COMPLETION: ("prompt", "completion"),
    CONVERSATION: ("prompt", "completion"),
    MESSAGES: ("messages",),
    TEXT: ("text",),
}

Row = dict[str, Any]
Message = dict[str, Any]


class BadInput(Exception):
    """A file, folder or setting that cannot be used; the message names it and says what is wrong, in one line."""


@dataclass(frozen=True)
class RowSet:
    """Rows of one layout, each with the columns of that layout only."""

    path: Path
    rows: list[Row]
    layout: str
    held_out: bool


def data_file(data: Path) -> Path:
    """The file to evaluate on: of a prepared dataset folder test.jsonl or, where that is missing, train.jsonl.

    Raises BadInput for a folder with neither.
    """
    if not data.is_dir():
        return data
    for name in (TEST, TRAIN):
        if (data / name).is_file():
            return data / name
    raise BadInput(f"{data}: has neither {TEST} nor {TRAIN}; prepare the folder with trainwright.initializers")


def is_held_out(path: Path) -> bool:
    """Whether a data file holds rows that the model was not trained on: any file but train.jsonl."""
    return path.name != TRAIN


def read_rows(data: Path, *, max_rows: int | None = None) -> RowSet:
    """The rows of a prepared dataset folder or of a JSON Lines file; blank lines are skipped.

    max_rows: reading stops after so many rows.
    Raises BadInput for a file that cannot be read or has no rows, and for a row that is not JSON, lacks a column or has
    another layout than the first row.
    """
    path = data_file(data)
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:  # lines end at \n only: a string may hold U+2028
            rows = list(islice(_parsed(file, path), max_rows))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    if not rows:
        raise BadInput(f"{path}: has no rows")
    layout = rows[0][0]
    for found, _, where in rows:
        if found != layout:
            raise BadInput(f"{where}: has the layout {found}, the first row has {layout}")
    return RowSet(path, [row for _, row, _ in rows], layout, is_held_out(path))


def plain_text(messages: list[Message]) -> str:
    """A conversation as text for people, one paragraph per message."""
    return "\n".join(f"{message['role']}: {content_of(message)}" for message in messages)


def content_of(message: Message) -> str:
    """The text of a message, whose content may be a string, a list of parts, or null beside tool calls."""
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
        raise BadInput(f"{where}: is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise BadInput(f"{where}: is not JSON: nested too deeply") from error
    if not isinstance(row, dict):
        raise BadInput(f"{where}: is not a JSON object")
    layout = _layout_of(row, where)
    for column in _COLUMNS[layout]:
        if layout in CONVERSATIONAL:
            _check_messages(row[column], f'{where}: column "{column}"')
        elif not isinstance(row[column], str):
            raise BadInput(f'{where}: column "{column}" is not text')
    return layout, {column: row[column] for column in _COLUMNS[layout]}


def _layout_of(row: Row, where: str) -> str:
    if "prompt" in row or "completion" in row:
        for column in _COLUMNS[PROMPT_COMPLETION]:
            if column not in row:
                raise BadInput(f'{where}: has no column "{column}"')
        return CONVERSATION if isinstance(row["prompt"], list) else PROMPT_COMPLETION
    for layout in (MESSAGES, TEXT):
        if layout in row:
            return layout
    raise BadInput(f'{where}: has none of the columns "prompt" and "completion", "messages", "text"')


def _check_messages(value: Any, what: str) -> None:
    if not isinstance(value, list) or not value:
        raise BadInput(f"{what} is not a list of messages")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
            raise BadInput(f'{what} has a message without "role" and "content"')
