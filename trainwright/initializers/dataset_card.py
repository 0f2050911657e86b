"""The card of a dataset, its README.md: which files belong to which subset and split, as the Hugging Face Hub reads it.

The block of YAML at its start has `configs`, a list of subsets with the patterns of their files.

The card of a prepared folder tells the library `datasets` the types of the columns. Otherwise it guesses them from the first 10 MB:
texts that are all dates become timestamps, arguments of tools get the keys of other rows as nulls, 1 becomes 1.0 beside 1.5, and a
tool call after the first 10 MB ends the load.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.initializers.conversations import TEMPLATE_COLUMNS
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.rows import BY_SUFFIX, Reading, json_line, parse_json
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import write_bytes
from trainwright.text.text_input import Unreadable
from trainwright.text.yaml_reader import read_yaml

CARD = "README.md"
_MAX_BYTES = 4 * 1024 * 1024
_MAX_PATTERNS = 2000
"""Of one subset; datasets with more name their files by patterns."""
_CSV_OPTIONS = (
    "names",
    "column_names",
    "header",
    "index_col",
    "usecols",
    "skiprows",
    "skipfooter",
    "nrows",
    "skipinitialspace",
    "quotechar",
    "quoting",
    "doublequote",
    "escapechar",
    "comment",
    "lineterminator",
    "dialect",
    "encoding",
    "on_bad_lines",
)
"""Options of `datasets` for CSV, beside the delimiter, with which it reads other rows."""
_CONFIGS = re.compile(rb"^configs[ \t]*:", re.MULTILINE)
Row = dict[str, Any]
_PLAIN_MESSAGE = {"role", "content"}
_STRING, _BOOL, _JSON = "string", "bool", "json"
_DATE, _DATE_MESSAGES, _MESSAGES, _JSON_MESSAGES = "date", "messages with dates", "messages", "messages with other fields"
_OF_TEXT, _OF_MESSAGES = (_DATE, _STRING), (_DATE_MESSAGES, _MESSAGES, _JSON_MESSAGES)
"""From the narrowest type to the widest."""
_DATES = re.compile(r"\d{4}-\d\d-\d\d([ T]|$)", re.ASCII)
"""What pyarrow reads as a timestamp if all values are like it, and gives back with a time, even where a text is declared."""


@dataclass(frozen=True)
class Subset:
    """A subset that the card names. `patterns` are globs by split; without them all files below `folder` belong to it.

    `unsupported` are options for reading CSV that change its rows, and that only the library `datasets` knows.
    """

    name: str
    is_default: bool = False
    folder: str = ""
    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()
    reading: Reading = BY_SUFFIX
    unsupported: tuple[str, ...] = ()


def read_card(path: Path, within: Path) -> tuple[Subset, ...]:
    """Return the subsets that a README.md names, none if it names none. Raises InitializerError, OSError."""
    try:
        content = read_plain(path, _MAX_BYTES, within)
    except UnsafeFile as error:
        raise InitializerError(f"the dataset's {CARD} cannot be read: {error}") from error
    return parse_card(content)


def read_metadata(path: Path, within: Path) -> dict[str, Any]:
    """Return the fields at the start of a README.md, none if they are not valid. Raises OSError."""
    try:
        documents = read_yaml(_yaml_block(read_plain(path, _MAX_BYTES, within)), CARD)
    except (UnsafeFile, Unreadable):
        return {}
    return documents[0] if documents and isinstance(documents[0], dict) else {}


def parse_card(content: bytes) -> tuple[Subset, ...]:
    """Return the subsets in the content of a README.md. Raises InitializerError."""
    block = _yaml_block(content)
    if not _CONFIGS.search(block):
        return ()  # other cards may have any errors in their YAML
    try:
        documents = read_yaml(block, CARD)
    except Unreadable as error:
        raise InitializerError(f"the dataset's {error}") from error
    metadata = documents[0] if documents else None
    configs = metadata.get("configs") if isinstance(metadata, dict) else None
    if configs is None:  # most datasets have none
        return ()
    if not isinstance(configs, list):
        raise _invalid("configs is not a list")
    subsets = tuple(_subset(config, number) for number, config in enumerate(configs, 1))
    if len({subset.name for subset in subsets}) < len(subsets):
        raise _invalid("two subsets have the same config_name")
    return subsets


def _yaml_block(content: bytes) -> bytes:
    """Return what is between two lines of three hyphens at the start."""
    lines = content.removeprefix(b"\xef\xbb\xbf").splitlines()
    if not lines or lines[0].rstrip() != b"---":  # no block of YAML
        return b""
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == b"---":
            # The first line stays as an empty one, so that errors name the lines of the file.
            return b"\n" + b"\n".join(lines[1:number]) + b"\n"
    return b""


def _subset(config: Any, number: int) -> Subset:
    if not isinstance(config, dict):
        raise _invalid(f"entry {number} of configs is not an object")
    name = config.get("config_name", "default")
    folder = config.get("data_dir") or ""
    if not isinstance(name, str) or not name or not isinstance(folder, str):
        raise _invalid(f"entry {number} of configs: config_name and data_dir must be texts")
    folder = _relative(folder)
    files = _by_split(config.get("data_files"), name)
    below = f"{folder}/" if folder else ""
    patterns = tuple((split, tuple(f"{below}{_relative(pattern)}" for pattern in found)) for split, found in files.items())
    if sum(len(found) for _, found in patterns) > _MAX_PATTERNS:
        raise _invalid(f"the subset {name!r} has more than {_MAX_PATTERNS} patterns")
    is_default = config.get("default") is True or name == "default"
    unsupported = tuple(option for option in _CSV_OPTIONS if config.get(option) is not None)
    return Subset(name, is_default, folder, patterns, _reading(config, name), unsupported)


def _reading(config: dict[str, Any], name: str) -> Reading:
    """Return how to read the files of a subset. `delimiter` is another name of `sep`, and counts before it."""
    delimiter = config.get("delimiter") if config.get("delimiter") is not None else config.get("sep")
    field = config.get("field")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise _invalid(f"sep of the subset {name!r} must be one character, not {str(delimiter)[:20]!r}")
    if field is not None and not isinstance(field, str):
        raise _invalid(f"field of the subset {name!r} must be a text")
    return Reading(delimiter or "", field or "")


def _by_split(files: Any, name: str) -> dict[str, list[str]]:
    """Return the patterns by split: a text, a list of texts (both: train), an object by split, or a list of split and path."""
    if not files:
        return {}
    if isinstance(files, str) or (isinstance(files, list) and all(isinstance(each, str) for each in files)):
        return {"train": _texts(files, name)}
    if isinstance(files, dict):
        return {split: _texts(paths, name) for split, paths in files.items()}
    found: dict[str, list[str]] = {}
    for entry in files if isinstance(files, list) else [files]:
        if not isinstance(entry, dict) or not isinstance(split := entry.get("split", "train"), str):
            raise _invalid(f"data_files of the subset {name!r} must be paths, or a list of split and path")
        found.setdefault(split, []).extend(_texts(entry.get("path"), name))
    return found


def _texts(value: Any, name: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise _invalid(f"data_files of the subset {name!r}: a path must be a text or a list of texts")
    return texts


def _relative(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _invalid(problem: str) -> InitializerError:
    return InitializerError(f"the dataset's {CARD} is not valid: {problem}")


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
            # The type that has the values of both.
            known, order = self._types.get(column, found), (*_OF_TEXT, *_OF_MESSAGES)
            self._types[column] = max(known, found, key=order.index) if {known, found} <= {*order} else found

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
                path = folder / name
                completed = path.with_name(f".{path.name}.completed")
                with open(path, "rb") as rows, open(completed, "wb") as file:
                    for line in rows:
                        row = parse_json(line)
                        file.write(line if self.missing.keys() <= row.keys() else json_line({**self.missing, **row}))
                completed.replace(path)
        features = [_declaration(column, found) for column, found in self._types.items()]
        # JSON is YAML, and quotes whatever needs it.
        document = json.dumps({"dataset_info": {"features": features}}, indent=1)
        write_bytes(folder / CARD, f"---\n{document}\n---\n".encode())
        return Path(CARD)


def _type_of(value: Any) -> str:
    if isinstance(value, str):
        return _DATE if _DATES.match(value) else _STRING
    if isinstance(value, list):
        if not all(message.keys() == _PLAIN_MESSAGE for message in value):
            return _JSON_MESSAGES
        return _DATE_MESSAGES if all(_DATES.match(message["content"]) for message in value) else _MESSAGES
    return _BOOL if isinstance(value, bool) else _JSON


def _declaration(column: str, found: str) -> Row:
    if found == _MESSAGES:
        return {"name": column, "list": [{"name": name, "dtype": _STRING} for name in ("role", "content")]}
    if found in _OF_MESSAGES:
        return {"name": column, "list": _JSON}
    return {"name": column, "dtype": _JSON if found == _DATE else found}
