"""Maps the columns of a dataset to those that TRL reads: prompt and completion, messages, or text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainwright.initializers.errors import InitializerError

Row = dict[str, Any]
Mapper = Callable[[Row], Row]

_RESPONSE = "### Response:\n"


def mapper_for(columns: list[str], layout: str = "", source: str = "the dataset") -> tuple[str, Mapper]:
    """Return the layout of rows with these columns, and the function that maps such a row to TRL's columns.

    `layout` forces one of `alpaca`, `prompt-completion`, `messages`, `text`.
    Raises InitializerError, which lists the actual and the expected columns.
    """
    present = set(columns)
    for name, (needed, mapper) in _MAPPERS.items():
        if (not layout or layout == name) and needed <= present:
            return name, mapper
    if layout and layout not in _MAPPERS:
        raise InitializerError(f"unknown layout {layout!r}; known: {', '.join(_MAPPERS)}")
    expected = " or ".join(", ".join(sorted(needed)) for name, (needed, _) in _MAPPERS.items() if not layout or layout == name)
    raise InitializerError(f"{source} has the columns {', '.join(sorted(columns)) or 'none'}; expected {expected}")


def content_type(row: Row) -> str:
    """Return the content type of a mapped row's columns. It must be the same for all rows of a dataset."""
    return "lists of messages" if any(isinstance(value, list) for value in row.values()) else "text"


def is_empty(row: Row) -> bool:
    """Whether a mapped row has no text to train on, like some outputs of Alpaca and some lines of WikiText."""
    target = row.get("completion", row.get("messages", row.get("text")))
    if isinstance(target, list):
        return not any(message["content"].strip() for message in target)
    return not (target or "").strip()


def alpaca_prompt(instruction: str, context: str = "") -> str:
    """Return the prompt of an instruction, with the headings of the Alpaca layout."""
    middle = f"### Input:\n{context}\n\n" if context else ""
    return f"### Instruction:\n{instruction}\n\n{middle}{_RESPONSE}"


def _alpaca(row: Row) -> Row:
    return {"prompt": alpaca_prompt(_text(row, "instruction"), str(row.get("input") or "")), "completion": _text(row, "output")}


def _prompt_completion(row: Row) -> Row:
    lists = {column for column in ("prompt", "completion") if isinstance(row[column], list)}
    if len(lists) == 2:
        return {"prompt": _conversation(row, "prompt"), "completion": _conversation(row, "completion")}
    mapped = {column: _text(row, column) for column in ("prompt", "completion") if column not in lists}
    if lists:
        column, other = lists.pop(), next(iter(mapped))
        raise InitializerError(
            f"column {column!r} is a list and column {other!r} is text; expected text in both, or lists of messages in both"
        )
    return mapped


def _messages(row: Row) -> Row:
    return {"messages": _conversation(row, "messages")}


def _conversation(row: Row, column: str) -> list[Row]:
    messages = row[column]
    if not isinstance(messages, list) or not all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in messages):
        raise InitializerError(f"column {column!r} is not a list of messages with role and content")
    if not messages:
        raise InitializerError(f"column {column!r} has no message; expected at least one with role and content")
    for number, message in enumerate(messages, 1):
        for name in ("role", "content"):
            if not isinstance(message[name], str):
                kind = "empty" if message[name] is None else type(message[name]).__name__
                raise InitializerError(f"column {column!r}: {name} of message {number} is {kind}, expected text")
    return messages


def _plain_text(row: Row) -> Row:
    return {"text": _text(row, "text")}


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise InitializerError(f"column {column!r} is {'empty' if value is None else type(value).__name__}, expected text")
    return value


_MAPPERS: dict[str, tuple[set[str], Mapper]] = {
    "prompt-completion": ({"prompt", "completion"}, _prompt_completion),
    "messages": ({"messages"}, _messages),
    "alpaca": ({"instruction", "output"}, _alpaca),
    "text": ({"text"}, _plain_text),
}
