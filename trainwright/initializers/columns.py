"""Chooses the layout of a dataset by its columns, maps its rows to what TRL reads, and checks that the trainer learns from them.

The first row determines the layout. A layout is never guessed: where several fit, the user says which. TRL's scripts may train on
rows of other layouts, too, and learn something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from trainwright.initializers.conversations import (
    NOT_TEXT,
    TEMPLATE_COLUMNS,
    from_python_text,
    from_text_of_messages,
    read_template_columns,
)
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.layouts import (
    COLUMNS,
    KTO,
    LABEL,
    LAYOUTS,
    MESSAGES,
    PREFERENCE,
    PROMPT_COMPLETION,
    TEXT,
    Row,
)
from trainwright.workspace.receipt import Receipt

_BAD_ANSWERS = (
    f"the column {LABEL!r} is true or false, as in rows for KTO, but the layout leaves it out, so that answers marked false would be "
    "learned like all others: for builtin=kto, name the columns, as in "
    'columns={"prompt": "prompt", "completion": "completion", "label": "label"}; '
    f"for supervised fine-tuning, keep the rows whose {LABEL} is true, and name their columns without it"
)
_LISTS = "lists of messages"
_MAX_LISTED = 40
"""Columns that an error lists."""
_NAMES = {
    PROMPT_COMPLETION: "prompts with one answer each",
    MESSAGES: "conversations",
    TEXT: "texts",
    PREFERENCE: "chosen and rejected answers",
    KTO: "answers marked good or bad",
}
_OTHER_COLUMNS = {
    PREFERENCE: 'columns={"prompt": ..., "completion": "chosen"} leaves the chosen answers',
    KTO: 'keep those marked good, and columns={"prompt": ..., "completion": ...} leaves the mark out',
}
"""How examples to imitate are made of rows of other kinds."""
IMITATION = frozenset({PROMPT_COMPLETION, MESSAGES, TEXT})
"""The kinds of rows that `sft` learns from."""


class RowMapper:
    """Maps the rows of one dataset. All have the layout of the first, which `layout` then names, and become the same columns."""

    def __init__(
        self, layout: str = "", columns: Mapping[str, str] | None = None, trainer: str = "", *, as_messages: bool = False
    ):
        """`layout` forces one of LAYOUTS; `columns` names the source column of each column that the layout reads.

        `trainer` is the builtin trainer that the rows are for; `as_messages` makes messages of questions and answers. Raises
        InitializerError for an unknown layout or column.
        """
        if layout and layout not in LAYOUTS:
            raise InitializerError(f"unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
        check_column_names(columns or {})
        self.layout = layout
        self._trainer = trainer
        self._as_messages = as_messages
        self._columns = dict(columns or {})
        self._first: tuple[tuple[str, ...], str] | None = None
        self._reads_questions = False
        self._dropped: set[str] = set()

    @property
    def dropped(self) -> list[str]:
        """The columns of rows so far that the layout does not read, first those that other layouts read: they may matter."""
        return sorted(self._dropped, key=lambda column: (column not in COLUMNS, column))

    @property
    def questions(self) -> str:
        """What became of questions and answers in columns of text: messages, or text where a blank line or headings separate them."""
        if not self.layout or self._first is None or not self._reads_questions:
            return ""
        return "messages" if self._first[1] == _LISTS else "text"

    def map_row(self, row: Row, where: str) -> Row:
        """Return the row with the columns that TRL reads. `where` names it in errors.

        Raises InitializerError: missing or ambiguous columns, contents of another type, a different layout than the first row's, rows
        that the trainer does not learn from.
        """
        named = self._renamed(row, where) if self._columns else row
        if not self.layout:
            self.layout = _detect_layout(frozenset(named), where)
        if self._first is None:
            check_trainer(self.layout, self._trainer, where)
        layout = LAYOUTS[self.layout]
        if not layout.required <= named.keys():
            raise InitializerError(f"{where} has the columns {listed(named)}; expected {', '.join(sorted(layout.required))}")
        unused = named.keys() - layout.required - layout.optional
        if seen := sorted(column for column in unused & NOT_TEXT if named[column]):
            named_ones = json.dumps({column: column for column in sorted(layout.used(frozenset(named)))})
            raise InitializerError(
                f"{where}: column {seen[0]!r} has what a text model does not see; to leave it out, name the columns to learn from: "
                f"columns={named_ones}"
            )
        try:
            # Elsewhere a text with Python's notation may well be an answer, or a document.
            talks = layout.required if layout.rows == MESSAGES else ()
            read = {column: from_python_text(named[column], column) for column in talks}
            mapped = layout.map_row({**named, **read}, self._as_messages)
            beside = read_template_columns(named) if _content_type(mapped) == _LISTS else {}
        except InitializerError as error:
            raise InitializerError(f"{where}: {error}; the row begins {str(row)[:80]!r}") from error
        if LABEL in unused and _is_true_or_false(named[LABEL]) and "completion" in mapped:
            raise InitializerError(f"{where}: {_BAD_ANSWERS}")
        self._check_same_form(mapped, where)
        if not self._reads_questions and "prompt" in mapped and mapped["prompt"] != named.get("prompt"):
            given = (from_text_of_messages(named[column]) for column in layout.used(frozenset(named)))
            self._reads_questions = not any(isinstance(each, list) for each in given)
        self._dropped |= unused - (TEMPLATE_COLUMNS.keys() if _content_type(mapped) == _LISTS else set())
        return mapped | beside

    def _renamed(self, row: Row, where: str) -> Row:
        for column, source in self._columns.items():
            if source not in row:
                near = get_close_matches(source, list(row), n=3)
                hint = f"; did you mean {' or '.join(near)}?" if near else ""
                raise InitializerError(
                    f"{where}: there is no column {source!r}, which columns names for {column!r}; "
                    f"the columns are {listed(row)}{hint}"
                )
        beside = {column: row[column] for column in TEMPLATE_COLUMNS if column in row}
        return beside | {column: row[source] for column, source in self._columns.items()}

    def _check_same_form(self, mapped: Row, where: str) -> None:
        """TRL and the datasets library support neither text and messages in one dataset, nor rows with other columns."""
        form = (tuple(mapped), _content_type(mapped))
        if self._first is None:
            self._first = form
        columns, content = self._first
        if form[1] != content:
            raise InitializerError(
                f"{where}: {' and '.join(mapped)} of this row contain {form[1]}, those of earlier rows {content}"
            )
        if form[0] != columns:
            raise InitializerError(f"{where}: this row has {', '.join(mapped)}, earlier rows have {', '.join(columns)}")


def check_column_names(columns: Mapping[str, str]) -> None:
    """Raise InitializerError if the option `columns` maps to a column that no layout reads."""
    for column in columns:
        if column not in COLUMNS:
            raise InitializerError(f"columns maps to {column!r}, which no layout reads; known: {', '.join(sorted(COLUMNS))}")


def _detect_layout(columns: frozenset[str], where: str) -> str:
    """Return the layout that reads all that any other matching layout reads; `text` only where no other matches.

    A text beside other columns is usually the whole row once more, written out, as in Alpaca.
    """
    used = {name: layout.used(columns) for name, layout in LAYOUTS.items() if layout.required <= columns}
    if len(used) > 1:
        used.pop("text", None)
    widest = [name for name, read in used.items() if not any(read < other for other in used.values())]
    if len(widest) == 1:  # it reads all that the others read
        return widest[0]
    if widest:
        choices = " or ".join(f"layout={name}" for name in widest)
        raise InitializerError(
            f"{where} has the columns {listed(columns)}, which fit several layouts; choose {choices}, or name them with columns"
        )
    expected = " or ".join(", ".join(sorted(layout.required)) for layout in LAYOUTS.values())
    raise InitializerError(f"{where} has the columns {listed(columns)}; expected {expected}; or name them with columns")


def _is_true_or_false(value: Any) -> bool:
    """Whether a value is a boolean, or the text of one, as in CSV."""
    return isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in ("true", "false"))


def _content_type(row: Row) -> str:
    return _LISTS if any(isinstance(value, list) for value in row.values()) else "text"


def listed(columns: Row | frozenset[str] | list[str]) -> str:
    """Return the names of columns, those of a list in its order."""
    names = columns if isinstance(columns, list) else sorted(map(str, columns))
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more if names else "none"


def check_trainer(layout: str, trainer: str, where: str) -> None:
    """Raise InitializerError if the builtin trainer does not learn from rows of the layout; an empty name accepts all."""
    if not trainer:  # the program is not a builtin trainer
        return
    from trainwright.jobs.trainers.builtin_trainers import NoSuchTrainer, builtin_trainers, named_trainer  # slow

    try:
        accepted = named_trainer(trainer).rows
    except NoSuchTrainer as error:
        raise InitializerError(f"trainer: {error}") from None
    kind = LAYOUTS[layout].rows
    if not accepted or kind in accepted:  # a trainer that names no rows takes all
        return
    others = [f"builtin={name}" for name, each in builtin_trainers().items() if kind in each.rows]
    advice = [f"use {' or '.join(others)}"] if others else []
    if kind in _OTHER_COLUMNS and accepted & IMITATION:
        advice.append(_OTHER_COLUMNS[kind])
    elif PREFERENCE in accepted:
        advice.append('name the answers to compare with columns={"prompt": ..., "chosen": ..., "rejected": ...}')
    expected = " or ".join(_NAMES[each] for each in _NAMES if each in accepted)
    raise InitializerError(
        f"{where}: the rows are {_NAMES[kind]} (layout {layout}), but the trainer {trainer} learns from {expected}: "
        f"{'; or '.join(advice)}"
    )


def renders_messages(trainer: str) -> bool:
    """Whether a builtin trainer renders messages by the chat template of the model, as TRL's do."""
    from trainwright.jobs.trainers.builtin_trainers import NoSuchTrainer, named_trainer  # slow
    from trainwright.jobs.trainers.trl import TrlTrainer

    try:
        return isinstance(named_trainer(trainer), TrlTrainer)
    except NoSuchTrainer:  # whoever reads its rows says so
        return False


def check_receipt(receipt: Receipt, trainer: str) -> None:
    """Raise InitializerError if the builtin trainer does not learn from the rows of a prepared dataset."""
    layout = receipt.details.get("layout")
    if isinstance(layout, str) and layout in LAYOUTS:
        check_trainer(layout, trainer, receipt.source)
