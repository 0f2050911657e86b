"""Tells the library `datasets` the types of the prepared columns, in the card of their folder.

Otherwise it guesses them from the first 10 MB: texts that are all dates become timestamps, arguments of tools get the keys of other
rows as nulls, 1 becomes 1.0 beside 1.5, and a tool call after the first 10 MB ends the load.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trainwright.initializers.conversations import TEMPLATE_COLUMNS
from trainwright.initializers.dataset_card import CARD
from trainwright.initializers.rows import json_line, parse_json
from trainwright.storage.transfer import write_bytes

Row = dict[str, Any]

_PLAIN_MESSAGE = {"role", "content"}
_STRING, _BOOL, _JSON = "string", "bool", "json"
_DATE, _DATE_MESSAGES, _MESSAGES, _JSON_MESSAGES = "date", "messages with dates", "messages", "messages with other fields"
_OF_TEXT, _OF_MESSAGES = (_DATE, _STRING), (_DATE_MESSAGES, _MESSAGES, _JSON_MESSAGES)
"""From the narrowest type to the widest."""
_DATES = re.compile(r"\d{4}-\d\d-\d\d([ T]|$)", re.ASCII)
"""What pyarrow reads as a timestamp if all values are like it, and gives back with a time, even where a text is declared."""


class Features:
    """The columns of rows and their types: texts and messages of texts where that keeps them, else `json`, which keeps anything."""

    def __init__(self) -> None:
        self._types: dict[str, str] = {}
        self._with_column: dict[str, int] = dict.fromkeys(TEMPLATE_COLUMNS, 0)
        self._rows = 0

    def add(self, row: Row) -> None:
        """Take note of a row."""
        self._rows += 1
        for column, value in row.items():
            if column in TEMPLATE_COLUMNS:
                self._with_column[column] += 1
            found = _type_of(value)
            self._types[column] = _wider(self._types.get(column, found), found)

    @property
    def missing(self) -> Row:
        """The columns that some rows have and others lack, with the value that stands for none."""
        return {name: none for name, none in TEMPLATE_COLUMNS.items() if 0 < self._with_column[name] < self._rows}

    def write(self, folder: Path, names: list[Path]) -> Path:
        """Give all rows of the files in the folder the same columns, and write its card. Returns the card's name.

        Raises StorageError, OSError.
        """
        if self.missing:
            for name in names:
                _complete(folder / name, self.missing)
        write_bytes(folder / CARD, self._card())
        return Path(CARD)

    def _card(self) -> bytes:
        # JSON is YAML, and quotes whatever needs it.
        features = [_declaration(column, found) for column, found in self._types.items()]
        return f"---\n{json.dumps({'dataset_info': {'features': features}}, indent=1)}\n---\n".encode()


def _type_of(value: Any) -> str:
    if isinstance(value, str):
        return _DATE if _DATES.match(value) else _STRING
    if isinstance(value, list):
        if not all(message.keys() == _PLAIN_MESSAGE for message in value):
            return _JSON_MESSAGES
        return _DATE_MESSAGES if all(_DATES.match(message["content"]) for message in value) else _MESSAGES
    return _BOOL if isinstance(value, bool) else _JSON


def _wider(one: str, other: str) -> str:
    """Return the type that has the values of both."""
    order = (*_OF_TEXT, *_OF_MESSAGES)
    return max(one, other, key=order.index) if {one, other} <= {*order} else other


def _declaration(column: str, found: str) -> Row:
    if found == _MESSAGES:
        return {"name": column, "list": [{"name": name, "dtype": _STRING} for name in ("role", "content")]}
    if found in _OF_MESSAGES:
        return {"name": column, "list": _JSON}
    return {"name": column, "dtype": _JSON if found == _DATE else found}


def _complete(path: Path, missing: Row) -> None:
    completed = path.with_name(f".{path.name}.completed")
    with open(path, "rb") as rows, open(completed, "wb") as file:
        for line in rows:
            row = parse_json(line)
            file.write(line if missing.keys() <= row.keys() else json_line({**missing, **row}))
    completed.replace(path)
