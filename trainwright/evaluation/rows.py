"""Reads the rows to evaluate: all layouts of prepared datasets.
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
PREFERENCE, LABEL = "preference", "label"
"""The kinds of rows whose answers are compared: with a chosen and a rejected one, or with one and a label."""
REJECTED = "rejected"
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
    """Rows of one layout, with only the columns that training on this layout reads.

    Rows of preferences have prompt, `completion` (the chosen answer) and `rejected`, those for KTO have prompt, completion and
    `label`; `kind` then says so.
    """

    path: Path
    rows: list[Row]
    layout: str
    held_out: bool
    kind: str = ""


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
    layout, kind = rows[0][0], _kind_of(rows[0][1])
    for found, row, where in rows:
        if found != layout or _kind_of(row) != kind:
            names = [" ".join(filter(None, pair)) for pair in ((found, _kind_of(row)), (layout, kind))]
            raise InvalidInput(f"{where}: has the layout {names[0]}, the first row has {names[1]}")
    return RowSet(path, [row for _, row, _ in rows], layout, is_held_out(path), kind)


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
    row = _with_completion(row, where)
    layout = _layout_of(row, where)
    columns = (*_COLUMNS[layout], *((REJECTED,) if _kind_of(row) == PREFERENCE else ()))
    for column in columns:
        if layout in CONVERSATIONAL:
            value = row[column]
            what = f'{where}: column "{column}"'
            if not isinstance(value, list) or not value:
                raise InvalidInput(f"{what} is not a list of messages")
            for message in value:
                if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
                    raise InvalidInput(f'{what} has a message without "role" and "content"')
        elif not isinstance(row[column], str):
            raise InvalidInput(f'{where}: column "{column}" is not text')
    also = [column for column in TEMPLATE_COLUMNS if layout in CONVERSATIONAL and row.get(column)]
    marks = (LABEL,) if _kind_of(row) == LABEL else ()
    return layout, {column: row[column] for column in (*columns, *marks, *also)}


def _kind_of(row: Row) -> str:
    if REJECTED in row:
        return PREFERENCE
    is_mark = isinstance(row.get(LABEL), int) and row[LABEL] in (0, 1)
    return LABEL if is_mark and "completion" in row else ""


def _with_completion(row: Row, where: str) -> Row:
    """Return a row of preferences with the chosen answer as `completion`, and with its prompt; any other as it is."""
    if "chosen" not in row and REJECTED not in row:
        return row
    for column in ("chosen", REJECTED):
        if column not in row:
            raise InvalidInput(f'{where}: has no column "{column}"')
        if not isinstance(row[column], str | list):
            raise InvalidInput(f'{where}: column "{column}" is neither text nor a list of messages')
    prompt, chosen, rejected = row.get("prompt"), row["chosen"], row[REJECTED]
    if "prompt" not in row:
        pairs = enumerate(zip(chosen, rejected, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), min(len(chosen), len(rejected)))
        same = same - 1 if same and chosen[same - 1] == " " else same  # as TRL finds the prompt: without a space at its end
        prompt, chosen, rejected = chosen[:same], chosen[same:], rejected[same:]
    return {**row, "prompt": prompt, "completion": chosen, REJECTED: rejected}


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
