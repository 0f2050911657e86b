"""The layouts of rows that datasets come in, and how a row of each becomes one that TRL reads.

TRL reads prompt and completion, messages, text, for preferences chosen and rejected with or without a prompt, and for KTO prompt,
completion and label. Beside messages, it reads tools and settings of the chat template, whatever the layout.

A question and its answer in separate columns become messages for a model with a chat template. Without one, a blank line separates
them: TRL joins prompt and completion as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from trainwright.initializers.conversations import (
    TEMPLATE_COLUMNS,
    common_beginning,
    from_python_text,
    from_text_of_messages,
    is_blank,
    read_conversation,
    with_system,
)
from trainwright.initializers.errors import InitializerError
from trainwright.text.text_input import is_number

Row = dict[str, Any]
Mapper = Callable[[Row, bool], Row]

PROMPT_COMPLETION, MESSAGES, TEXT, PREFERENCE, KTO = "prompt-completion", "messages", "text", "preference", "kto"
"""The kinds of mapped rows, by which builtin trainers name what they learn from."""
LABEL = "label"
"""The column of KTO's rows that tells whether an answer is good."""
_LABELS: dict[Any, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
"""Python takes 1, 1.0 and True for the same key."""
_RESPONSE = "### Response:\n"
_BLANK_LINE = "\n\n"
_SYSTEMS = ("system", "system_prompt")
"""Columns that may have the text of a system message."""
_PROMPTS = ("prompt", "question", "query", "instruction", "input")
"""Columns that may have the prompt of a chosen and a rejected answer."""
_NAME_THE_PROMPT = 'name the prompt with columns={"prompt": ..., "chosen": ..., "rejected": ...}'


@dataclass(frozen=True)
class Layout:
    """The columns that a row of the layout has and those that it may have; `map_row` raises InitializerError.

    The second argument of `map_row` says whether questions and answers become messages.
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
    def map_row(row: Row, as_messages: bool) -> Row:
        given, system, wanted = _text_or_none(row, context), _system(row), _text(row, answer)
        instruction = _text(row, "instruction")
        if as_messages:
            return {"prompt": _asked(_paragraphs(instruction, given), system), "completion": _answered(wanted)}
        return {"prompt": _paragraphs(system, alpaca_prompt(instruction, given)), "completion": wanted}

    return _layout(map_row, "instruction", answer, optional=[context, *_SYSTEMS], rows=PROMPT_COMPLETION)


def _pair(question: str, answer: str) -> Layout:
    """Return the layout of two columns. Texts in TRL's own columns stay as they are: their author decides how they are joined."""
    is_joined = (question, answer) != ("prompt", "completion")

    def map_row(row: Row, as_messages: bool) -> Row:
        row = {**row, question: from_python_text(row[question], question)}  # an answer may well be code
        read = {column: from_text_of_messages(row[column]) for column in (question, answer)}
        if all(isinstance(value, list) for value in read.values()):
            row = {**row, **read}
        lists = [column for column in (question, answer) if isinstance(row[column], list)]
        if len(lists) == 2:  # both are conversations
            prompt = with_system(read_conversation(row[question], question), _system(row) if is_joined else "")
            return {"prompt": prompt, "completion": read_conversation(row[answer], answer)}
        texts = {column: _text(row, column) for column in (question, answer) if column not in lists}
        if lists:
            raise InitializerError(
                f"column {lists[0]!r} is a list and column {next(iter(texts))!r} is text; "
                "expected text in both, or lists of messages in both"
            )
        if not is_joined:  # their author decides how they are joined
            return {"prompt": texts[question], "completion": texts[answer]}
        if as_messages:
            return {"prompt": _asked(texts[question], _system(row)), "completion": _answered(texts[answer])}
        return {"prompt": _separated(_paragraphs(_system(row), texts[question])), "completion": texts[answer]}

    return _layout(map_row, question, answer, optional=_SYSTEMS if is_joined else (), rows=PROMPT_COMPLETION)


def _asked(question: str, system: str) -> list[Row]:
    return with_system([{"role": "user", "content": question}], system)


def _answered(answer: str) -> list[Row]:
    return [{"role": "assistant", "content": answer}]


def _paragraphs(*texts: str) -> str:
    return _BLANK_LINE.join(filter(None, texts))


def _separated(question: str) -> str:
    """Return a question with the blank line before its answer, which ends the prompt: a token may join `?` and line ends."""
    return f"{question.rstrip()}{_BLANK_LINE}" if question else ""


def _system(row: Row) -> str:
    """Return the text of the system message, empty without one. Raises InitializerError for two different ones."""
    found = [text for column in _SYSTEMS if row.get(column) is not None and (text := _text(row, column)).strip()]
    if len({*found}) > 1:
        raise InitializerError(f"{' and '.join(_SYSTEMS)} differ, and one is needed; name the columns to learn from with columns")
    return found[0] if found else ""


def _kto() -> Layout:
    answer = _pair("prompt", "completion")

    def map_row(row: Row, as_messages: bool) -> Row:
        return {**answer.map_row(row, as_messages), LABEL: _is_good(row[LABEL])}

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


def _conversation(column: str) -> Layout:
    def map_row(row: Row, _as_messages: bool) -> Row:
        return {"messages": with_system(read_conversation(row[column], column, has_weights=True), _system(row))}

    return _layout(map_row, column, optional=_SYSTEMS, rows=MESSAGES)


def _preference(row: Row, as_messages: bool) -> Row:
    column = _prompt_column(row)
    given: Row = {name: from_text_of_messages(row[name]) for name in (column, "chosen", "rejected") if name}
    if not any(isinstance(given[name], list) for name in ("chosen", "rejected")):
        chosen, rejected = _text(row, "chosen"), _text(row, "rejected")
        is_own = column == "prompt" and not {*_SYSTEMS} & row.keys()
        if column and as_messages and not is_own:
            asked = _paragraphs(_text(row, column), _text_or_none(row, "input") if column == "instruction" else "")
            return _with_text_prompt(asked, _system(row), _answered(chosen), _answered(rejected))
        if column:
            return {"prompt": _text_prompt(row, column), "chosen": chosen, "rejected": rejected}
        if _system(row):
            raise InitializerError(f"there is a system text, but no column with the prompt; {_NAME_THE_PROMPT}")
        if chosen and rejected and not _begin_alike(chosen, rejected):
            raise InitializerError(f"chosen and rejected have no common beginning that is the prompt; {_NAME_THE_PROMPT}")
        return {"chosen": chosen, "rejected": rejected}
    answers = {name: read_conversation(given[name], name) for name in ("chosen", "rejected")}
    if column == "instruction" and row.get("input"):
        raise InitializerError(
            f"instruction and input are both part of the prompt, and the answers are messages; {_NAME_THE_PROMPT}"
        )
    if not column:  # the common beginning is the prompt
        _check_implicit_prompt(answers["chosen"], answers["rejected"])
        return {name: with_system(messages, _system(row)) for name, messages in answers.items()}
    if isinstance(given[column], list):
        return {"prompt": with_system(read_conversation(given[column], column), _system(row)), **answers}
    return _with_text_prompt(_text(row, column), _system(row), answers["chosen"], answers["rejected"])


def _prompt_column(row: Row) -> str:
    """Return the column with the prompt of chosen and rejected answers, empty without one. Raises InitializerError for several."""
    found = [column for column in _PROMPTS if column in row]
    if found == ["instruction", "input"]:  # the two belong together, as in Alpaca
        return found[0]
    if "prompt" in found:  # the others may say the same in another way, or be part of it
        if any(row[column] for column in found[1:] if row[column] != row["prompt"]):
            raise InitializerError(f"{' and '.join(found)} may each be, or belong to, the prompt; {_NAME_THE_PROMPT}")
        return found[0]
    if len(found) > 1:
        raise InitializerError(f"{' and '.join(found)} may each be the prompt of chosen and rejected; {_NAME_THE_PROMPT}")
    return found[0] if found else ""


def _text_prompt(row: Row, column: str) -> str:
    """Return the prompt of answers that are text, after that of the system; an instruction with its headings, as in Alpaca."""
    if column == "instruction":
        return _paragraphs(_system(row), alpaca_prompt(_text(row, column), _text_or_none(row, "input")))
    prompt = _paragraphs(_system(row), _text(row, column))
    return prompt if column == "prompt" else _separated(prompt)


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


def _with_text_prompt(prompt: str, system: str, chosen: list[Row], rejected: list[Row]) -> Row:
    """Return a row whose prompt is a list of messages too: TRL ignores a text beside conversations.

    The conversations may repeat the prompt, as in UltraFeedback, or hold the answers alone.
    """
    same = common_beginning(chosen, rejected)
    if chosen[0]["role"] != "assistant" and chosen != rejected:  # the conversations repeat the prompt
        _check_implicit_prompt(chosen, rejected)
        return {"prompt": with_system(chosen[:same], system), "chosen": chosen[same:], "rejected": rejected[same:]}
    return {"prompt": _asked(prompt, system), "chosen": chosen, "rejected": rejected}


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
    "messages": _conversation("messages"),
    "alpaca": _instruction("input", "output"),
    "preference": _layout(_preference, "chosen", "rejected", optional=[*_PROMPTS, *_SYSTEMS], rows=PREFERENCE),
    "kto": _kto(),
    "conversations": _conversation("conversations"),
    "conversation": _conversation("conversation"),
    "question-answer": _pair("question", "answer"),
    "question-response": _pair("question", "response"),
    "query-response": _pair("query", "response"),
    "prompt-response": _pair("prompt", "response"),
    "input-output": _pair("input", "output"),
    "instruction-response": _instruction("context", "response"),
    "text": _layout(lambda row, _as_messages: {"text": _text(row, "text")}, "text", rows=TEXT),
}
"""By name, as the option `layout` takes it."""
COLUMNS = (
    frozenset(column for layout in LAYOUTS.values() for column in layout.required | layout.optional) | TEMPLATE_COLUMNS.keys()
)
"""All columns that some layout reads."""
