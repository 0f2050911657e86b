"""The layouts of rows that datasets come in, and how a row of each becomes one that TRL reads.

TRL reads prompt and completion, messages, text, for preferences chosen and rejected with or without a prompt, and for KTO prompt,
completion and label. Beside messages, it reads tools and settings of the chat template, whatever the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from trainwright.initializers.conversations import (
    common_beginning,
    from_text_of_messages,
    is_blank,
    read_conversation,
    with_system,
)
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.tool_calls import TEMPLATE_COLUMNS
from trainwright.text.finite_number import is_number

Row = dict[str, Any]
Mapper = Callable[[Row], Row]

PROMPT_COMPLETION, MESSAGES, TEXT, PREFERENCE, KTO = "prompt-completion", "messages", "text", "preference", "kto"
"""The kinds of mapped rows, by which builtin trainers name what they learn from."""
LABEL = "label"
"""The column of KTO's rows that tells whether an answer is good."""
_LABELS: dict[Any, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
"""Python takes 1, 1.0 and True for the same key."""
_RESPONSE = "### Response:\n"
_PROMPTS = ("prompt", "question", "query", "instruction", "input")
"""Columns that may have the prompt of a chosen and a rejected answer."""
_NAME_THE_PROMPT = 'name the prompt with columns={"prompt": ..., "chosen": ..., "rejected": ...}'


@dataclass(frozen=True)
class Layout:
    """The columns that a row of the layout has and those that it may have; `map_row` raises InitializerError.

    `rows` is the kind of the mapped rows, which decides who learns from them: `prompt-completion`, `messages`, `text`, `preference`
    or `kto`.
    """

    required: frozenset[str]
    optional: frozenset[str]
    map_row: Mapper
    rows: str

    def used(self, columns: frozenset[str]) -> frozenset[str]:
        """Return those of the columns that the layout reads."""
        return self.required | self.optional & columns


def is_empty(row: Row) -> bool:
    """Whether a mapped row has nothing to learn from: no text, or two answers that are the same."""
    if "chosen" in row:
        # An empty answer may well be rejected, but without a prompt there is then nothing at all.
        return has_same_answers(row) or _has_no_text(row["chosen"]) or ("prompt" not in row and _has_no_text(row["rejected"]))
    if row.get(LABEL) is False:  # an empty answer may well be a bad one
        return _has_no_text(row["prompt"])
    return _has_no_text(next(row[column] for column in ("completion", "messages", "text") if column in row))


def has_same_answers(row: Row) -> bool:
    """Whether a mapped row prefers an answer to itself."""
    return "chosen" in row and bool(row["chosen"] == row["rejected"])


def _has_no_text(value: str | list[Row]) -> bool:
    return is_blank(value) if isinstance(value, list) else not value.strip()


def alpaca_prompt(instruction: str, context: str = "") -> str:
    """Return the prompt of an instruction, with the headings of the Alpaca layout."""
    middle = f"### Input:\n{context}\n\n" if context else ""
    return f"### Instruction:\n{instruction}\n\n{middle}{_RESPONSE}"


def _instruction(context: str, answer: str) -> Layout:
    def map_row(row: Row) -> Row:
        return {"prompt": alpaca_prompt(_text(row, "instruction"), _text_or_none(row, context)), "completion": _text(row, answer)}

    return _layout(map_row, "instruction", answer, optional=[context], rows=PROMPT_COMPLETION)


def _pair(question: str, answer: str) -> Layout:
    def map_row(row: Row) -> Row:
        read = {column: from_text_of_messages(row[column]) for column in (question, answer)}
        if all(isinstance(value, list) for value in read.values()):
            row = {**row, **read}
        lists = [column for column in (question, answer) if isinstance(row[column], list)]
        if len(lists) == 2:
            return {"prompt": read_conversation(row[question], question), "completion": read_conversation(row[answer], answer)}
        texts = {column: _text(row, column) for column in (question, answer) if column not in lists}
        if lists:
            raise InitializerError(
                f"column {lists[0]!r} is a list and column {next(iter(texts))!r} is text; "
                "expected text in both, or lists of messages in both"
            )
        return {"prompt": texts[question], "completion": texts[answer]}

    return _layout(map_row, question, answer, rows=PROMPT_COMPLETION)


def _kto() -> Layout:
    answer = _pair("prompt", "completion")

    def map_row(row: Row) -> Row:
        return {**answer.map_row(row), LABEL: _is_good(row[LABEL])}

    return _layout(map_row, *answer.required, LABEL, rows=KTO)


def _is_good(label: Any) -> bool:
    """Read a label: true and false, 1 and 0, or the text of one of these."""
    value = label.strip().lower() if isinstance(label, str) else label
    if isinstance(value, list | dict) or value not in _LABELS:
        raise InitializerError(
            f"column {LABEL!r} is {str(label)[:40]!r}, but in rows for KTO it is true for a good answer and false for a bad one, or 1 "
            "and 0; if it says something else, layout=prompt-completion leaves it out"
        )
    return _LABELS[value]


def _messages(row: Row) -> Row:
    return {"messages": read_conversation(row["messages"], "messages")}


def _sharegpt(column: str) -> Layout:
    def map_row(row: Row) -> Row:
        return {"messages": with_system(read_conversation(row[column], column), row.get("system"), "system")}

    return _layout(map_row, column, optional=["system"], rows=MESSAGES)


def _preference(row: Row) -> Row:
    column = _prompt_column(row)
    given: Row = {name: from_text_of_messages(row[name]) for name in (column, "chosen", "rejected") if name}
    if not any(isinstance(given[name], list) for name in ("chosen", "rejected")):
        chosen, rejected = _text(row, "chosen"), _text(row, "rejected")
        if column:
            return {"prompt": _text_prompt(row, column), "chosen": chosen, "rejected": rejected}
        if row.get("system"):
            raise InitializerError(f"there is a system text, but no column with the prompt; {_NAME_THE_PROMPT}")
        if chosen and rejected and not _begin_alike(chosen, rejected):
            raise InitializerError(f"chosen and rejected have no common beginning that is the prompt; {_NAME_THE_PROMPT}")
        return {"chosen": chosen, "rejected": rejected}
    answers = {name: read_conversation(given[name], name) for name in ("chosen", "rejected")}
    if column == "instruction" and row.get("input"):
        raise InitializerError(
            f"instruction and input are both part of the prompt, and the answers are messages; {_NAME_THE_PROMPT}"
        )
    if not column:
        _check_implicit_prompt(answers["chosen"], answers["rejected"])
        return {name: with_system(messages, row.get("system"), "system") for name, messages in answers.items()}
    if isinstance(given[column], list):
        prompt = read_conversation(given[column], column)
        return {"prompt": with_system(prompt, row.get("system"), "system"), **answers}
    return _with_text_prompt(_text(row, column), row.get("system"), answers["chosen"], answers["rejected"])


def _prompt_column(row: Row) -> str:
    """Return the column with the prompt of chosen and rejected answers, empty without one. Raises InitializerError for several."""
    found = [column for column in _PROMPTS if column in row]
    if found == ["instruction", "input"]:
        return found[0]
    if "prompt" in found:  # the others may say the same in another way, or be part of it
        if any(row[column] for column in found[1:] if row[column] != row["prompt"]):
            raise InitializerError(f"{' and '.join(found)} may each be, or belong to, the prompt; {_NAME_THE_PROMPT}")
        return found[0]
    if len(found) > 1:
        raise InitializerError(f"{' and '.join(found)} may each be the prompt of chosen and rejected; {_NAME_THE_PROMPT}")
    return found[0] if found else ""


def _text_prompt(row: Row, column: str) -> str:
    """Return the prompt of answers that are text, after the text of `system`; an instruction with its headings, as in Alpaca."""
    prompt = alpaca_prompt(_text(row, column), _text_or_none(row, "input")) if column == "instruction" else _text(row, column)
    return f"{_text(row, 'system')}\n\n{prompt}" if row.get("system") else prompt


def _begin_alike(chosen: str, rejected: str) -> bool:
    """Whether both texts begin with the same line, or the same speaker, as conversations do: answers share a few words, too."""
    same = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False)))
    return chosen == rejected or "\n" in same or ":" in same


def _check_implicit_prompt(chosen: list[Row], rejected: list[Row]) -> None:
    same = common_beginning(chosen, rejected)
    if chosen != rejected and not 0 < same < min(len(chosen), len(rejected)):
        raise InitializerError(
            "chosen and rejected must begin with the same messages, which are the prompt, and end with different ones; "
            f"otherwise {_NAME_THE_PROMPT}"
        )


def _with_text_prompt(prompt: str, system: Any, chosen: list[Row], rejected: list[Row]) -> Row:
    """Return a row whose prompt is a list of messages too: TRL ignores a text beside conversations.

    The conversations may repeat the prompt, as in UltraFeedback, or hold the answers alone.
    """
    same = common_beginning(chosen, rejected)
    if chosen[0]["role"] != "assistant" and chosen != rejected:
        _check_implicit_prompt(chosen, rejected)
        return {"prompt": with_system(chosen[:same], system, "system"), "chosen": chosen[same:], "rejected": rejected[same:]}
    asked = [{"role": "user", "content": prompt}]
    return {"prompt": with_system(asked, system, "system"), "chosen": chosen, "rejected": rejected}


def _plain_text(row: Row) -> Row:
    return {"text": _text(row, "text")}


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise InitializerError(f"column {column!r} is {'empty' if value is None else type(value).__name__}, expected text")
    return value


def _text_or_none(row: Row, column: str) -> str:
    """Return a text, empty for null or without the column. Numbers, as in data on mathematics, count as texts."""
    value = row.get(column)
    if is_number(value):  # NaN is the missing value of a table, and no text
        return str(value)
    return "" if value is None else _text(row, column)


def _layout(map_row: Mapper, *required: str, optional: Iterable[str] = (), rows: str) -> Layout:
    return Layout(frozenset(required), frozenset(optional), map_row, rows)


LAYOUTS: dict[str, Layout] = {
    "prompt-completion": _pair("prompt", "completion"),
    "messages": _layout(_messages, "messages", rows=MESSAGES),
    "alpaca": _instruction("input", "output"),
    "preference": _layout(_preference, "chosen", "rejected", optional=[*_PROMPTS, "system"], rows=PREFERENCE),
    "kto": _kto(),
    "conversations": _sharegpt("conversations"),
    "conversation": _sharegpt("conversation"),
    "question-answer": _pair("question", "answer"),
    "question-response": _pair("question", "response"),
    "query-response": _pair("query", "response"),
    "prompt-response": _pair("prompt", "response"),
    "input-output": _pair("input", "output"),
    "instruction-response": _instruction("context", "response"),
    "text": _layout(_plain_text, "text", rows=TEXT),
}
"""By name, as the option `layout` takes it."""
COLUMNS = (
    frozenset(column for layout in LAYOUTS.values() for column in layout.required | layout.optional) | TEMPLATE_COLUMNS.keys()
)
"""All columns that some layout reads."""
