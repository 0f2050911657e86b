"""Counts the tokens of rows as TRL makes them, with its EOS, its arguments of chat templates, and the first trained token.

The files of a prepared dataset are read once, in bounded memory, and the tokens of a sample of the rows are counted.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from trainwright.initializers.conversations import TEMPLATE_KWARGS, TOOLS
from trainwright.initializers.data_report.figures import TokenFigures, token_figures
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.rows import parse_json
from trainwright.text.chat_templates import is_conversational, learned_answers, special_ids
from trainwright.text.foreign_texts import one_line

Row = dict[str, Any]
MAX_COUNTED = 100_000
"""Rows of a split whose tokens are counted: a minute or so. Of more, evenly distributed ones."""
_BATCH = 256
ROW_SECONDS = 2.0
"""Of a CPU, for the chat template with the messages of a row; usually less than a thousandth."""


class RowUnfit(InitializerError):
    """The training would fail at a row; the message names its file and number."""


def measure_tokens(
    path: Path, rows: int, tokenizer: Any, max_length: int, learned: Learned
) -> tuple[TokenFigures | None, Counter[int]]:
    """Count the tokens of a file with this number of rows, and the special tokens that rows end with, by their ids.

    Raises RowUnfit for a row that the chat template rejects, or with a token without an embedding, OSError.
    """
    totals: list[int] = []
    numbers: Counter[str] = Counter()
    special: Counter[int] = Counter()
    for counts in _counted(path, -(-rows // MAX_COUNTED), tokenizer, learned):
        totals += (each.total for each in counts)
        for each in counts:
            numbers["cut"] += each.is_cut(max_length)
            numbers["emptied"] += each.is_emptied(max_length)
            numbers["cut_answers"] += each.has_answer and each.is_cut(max_length)
            numbers["ended"] += each.learns_end(max_length)
        special.update(each.last_special for each in counts)
    return token_figures(totals, **numbers), special


def first_row(path: Path) -> Row:
    """Return the first row of a prepared file, which has one. Raises OSError."""
    with open(path, "rb") as lines:
        row: Row = parse_json(next(lines))
    return row


def _counted(path: Path, step: int, tokenizer: Any, learned: Learned) -> Iterator[list[RowTokens]]:
    with open(path, "rb") as lines:
        chosen = islice(lines, 0, None, max(step, 1))
        number = 0
        while batch := [parse_json(line) for line in islice(chosen, _BATCH)]:
            try:
                yield count_tokens(tokenizer, batch, learned)
            except RowRejected as error:
                raise RowUnfit(f"{path.name} row {(number + error.row) * max(step, 1) + 1}: {error}") from error
            number += len(batch)


@dataclass(frozen=True)
class RowTokens:
    """`total` counts all tokens of a row, of a pair of answers with the longer one; training learns those from `first_trained` on.

    `first_end` counts the tokens up to the first learned one that ends a generation, 0 without one. `last_special` is the id of the
    last special token, -1 without one.
    """

    total: int
    first_trained: int = 0
    first_end: int = 0
    last_special: int = -1
    has_answer: bool = True

    def learns_end(self, max_length: int) -> bool:
        """Whether a token that ends a generation is learned."""
        return 0 < self.first_end <= (max_length or self.total)

    def is_cut(self, max_length: int) -> bool:
        return 0 < max_length < self.total

    def is_emptied(self, max_length: int) -> bool:
        """Whether nothing is left to learn from: TRL drops the row."""
        return self.first_trained >= min(self.total, max_length or self.total)


@dataclass(frozen=True)
class Learned:
    """What a training learns: `ends` are the ids of the tokens that end a generation; only those below `embedded` have an embedding,
    with 0 all.

    With `answers`, a chat template that marks them, the loss is on the assistant's tokens of messages alone.
    """

    ends: Collection[int] = ()
    answers: str = ""
    embedded: int = 0


EVERYTHING = Learned()


def count_tokens(tokenizer: Any, rows: Sequence[Row], learned: Learned = EVERYTHING) -> list[RowTokens]:
    """Count the tokens of prepared rows with a tokenizer of transformers. For the main thread. Raises RowRejected."""
    special = special_ids(tokenizer)
    if learned.answers:  # the loss is on answers only: the template itself marks them
        return [_answer_tokens(tokenizer, row, index, learned, special) for index, row in enumerate(rows)]
    counts: list[RowTokens] = []
    for start in range(0, len(rows), _BATCH):
        texts = [_texts(tokenizer, row, start + index) for index, row in enumerate(rows[start : start + _BATCH])]
        is_chat = [is_conversational(row) for row in rows[start : start + _BATCH]]
        for index, (row, ids) in enumerate(
            zip(rows[start : start + _BATCH], _encoded(tokenizer, texts, is_chat), strict=True), start
        ):
            _check_embedded(tokenizer, ids, learned, index)
            counts.append(_row_tokens(ids, learned.ends, special, has_answer="text" not in row))
    return counts


def _check_embedded(tokenizer: Any, ids: list[list[int]], learned: Learned, index: int) -> None:
    """Raise RowRejected if a token of a row has no embedding."""
    if learned.embedded and (highest := max(map(max, filter(None, ids)), default=0)) >= learned.embedded:
        token = tokenizer.convert_ids_to_tokens(highest)
        raise RowRejected(
            index, f"the token {token!r} has the id {highest}, but the model has embeddings for {learned.embedded} only"
        )


def row_text(tokenizer: Any, row: Row, learned: Learned = EVERYTHING) -> str:
    """Return a row as the training sees it, of two answers the chosen one. Raises RowRejected."""
    if learned.answers:
        with _rendering(0):
            return str(
                tokenizer.decode(learned_answers(tokenizer, row["messages"], learned.answers, **_template_options(row))[0])
            )
    texts = _texts(tokenizer, row, 0)
    return str(tokenizer.decode(tokenizer(texts[:2][-1], add_special_tokens=not is_conversational(row))["input_ids"]))


class RowRejected(InitializerError):
    """The chat template, or the embedding of the model, rejects the row with the index `row`, as in the training."""

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row = row


def _encoded(tokenizer: Any, texts: list[list[str]], is_chat: list[bool]) -> list[list[list[int]]]:
    """Encode the texts of all rows at once."""
    ids: dict[bool, Any] = {}
    for chat in {*is_chat}:
        flat = [text for row, kind in zip(texts, is_chat, strict=True) if kind is chat for text in row]
        ids[chat] = iter(tokenizer(flat, add_special_tokens=not chat)["input_ids"])
    return [[next(ids[chat]) for _ in row] for row, chat in zip(texts, is_chat, strict=True)]


def _row_tokens(ids: list[list[int]], ends: Collection[int], special: Collection[int], *, has_answer: bool) -> RowTokens:
    """Return the counts of a text alone, or of a prompt and of the prompt with one answer or two, of which the first is wanted."""
    prompt, *answered = ids if len(ids) > 1 else [[], *ids]
    first = min(_common(prompt, each) for each in answered)
    learned = answered[0][max(first, 1) :]  # nothing is learned at the first token
    end = next((at for at, token in enumerate(learned, max(first, 1) + 1) if token in ends), 0)
    last = next((token for token in reversed(learned) if token in special), -1)
    return RowTokens(max(map(len, answered)), first, end, last, has_answer)


def _common(one: list[int], other: list[int]) -> int:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))


def _texts(tokenizer: Any, row: Row, index: int) -> list[str]:
    """Return the whole text of a row, or its prompt and the prompt with each answer."""
    if not is_conversational(row):
        if "text" in row:
            return [_closed(row["text"], tokenizer)]
        prompt, answers = _split(row)
        return [prompt, *(prompt + _closed(answer, tokenizer) for answer in answers)]
    with _rendering(index):
        render = partial(tokenizer.apply_chat_template, tokenize=False, **_template_options(row))
        if "messages" in row:
            return [render(row["messages"])]
        asked, answered = _split(row)
        return [render(asked, add_generation_prompt=True), *(render(asked + answer) for answer in answered)]


def _answer_tokens(tokenizer: Any, row: Row, index: int, learned: Learned, special: Collection[int]) -> RowTokens:
    """Return the counts of a conversation of which the answers alone are learned."""
    with _rendering(index):
        ids, mask = learned_answers(tokenizer, row["messages"], learned.answers, **_template_options(row))
    _check_embedded(tokenizer, [ids], learned, index)
    places = [at for at, is_learned in enumerate(mask) if is_learned]
    if not places:
        raise RowRejected(index, "it has no answer of the assistant, and loss_on=answers learns those alone")
    end = next((at + 1 for at in places if at and ids[at] in learned.ends), 0)
    last = next((ids[at] for at in reversed(places) if ids[at] in special), -1)
    return RowTokens(len(ids), places[0], end, last)


@contextmanager
def _rendering(index: int) -> Iterator[None]:
    """Limit the time of a chat template, and raise RowRejected for what it raises."""
    from jinja2 import TemplateSyntaxError

    try:
        with time_limit():
            yield
    except TemplateSyntaxError as error:
        raise RowRejected(index, f"the chat template is not valid: {one_line(str(error))[:300]}") from error
    except Exception as error:  # of a template, which is a program
        said = str(error) or type(error).__name__
        verb = "has not ended" if isinstance(error, TimeoutError | MemoryError) else "rejects the messages"
        raise RowRejected(index, f"the chat template {verb}: {one_line(said)[:300]}") from error


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise TimeoutError when a row takes too much time of a CPU, and end the process if even that is not possible."""

    def end(*_: object) -> None:
        raise TimeoutError(f"the row takes more than {ROW_SECONDS:g} s")

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, ROW_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, 2 * ROW_SECONDS)  # a single operation that does not end, such as 9**9**9
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGVTALRM, before)


def _template_options(row: Row) -> dict[str, Any]:
    tools = json.loads(row[TOOLS]) if isinstance(row.get(TOOLS), str) else row.get(TOOLS)
    return {"tools": tools, **(row.get(TEMPLATE_KWARGS) or {})}


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


def _closed(text: str, tokenizer: Any) -> str:
    return text if text.endswith(tokenizer.eos_token) else f"{text}{tokenizer.eos_token}"
