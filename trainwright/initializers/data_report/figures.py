"""The figures of a report: what is in the files of a prepared dataset, and what the training will make of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

MAX_SAMPLE = 2000
"""Characters of a sample row."""
_SAMPLE_END, _LEFT_OUT = 500, " [...] "
MAX_ANSWER = 1024 * 1024
"""Bytes of a `Measured` as it is passed on."""


@dataclass(frozen=True)
class TokenFigures:
    """The tokens of the rows of a split. Without `max_length`, it is not known how many rows are `cut` or `emptied`.

    `cut_answers` are the cut rows that have an answer, whose end is lost; `ended` those with a token to learn that ends generation.
    """

    counted: int
    p50: int
    p95: int
    longest: int
    cut: int = 0
    emptied: int = 0
    cut_answers: int = 0
    ended: int = 0


Severity = Literal["refused", "warning", "note", "not checked"]


@dataclass(frozen=True)
class Finding:
    """What a report has found: how bad it is, a name for programs, and what it is with what to do."""

    severity: Severity
    name: str
    text: str


@dataclass(frozen=True)
class SplitFigures:
    """The rows of a split, how many of them equal an earlier one, and their tokens, if these were counted."""

    rows: int
    duplicates: int
    tokens: TokenFigures | None = None


@dataclass(frozen=True)
class MeasureRequest:
    """What to measure with which tokenizer: the folder of its files, the name of its model in messages, and as `DataReport` says."""

    tokenizer: Path
    model: str
    data: Path
    rows: dict[str, int]
    """By the names of files; the first file has one at least."""
    max_length: int
    end_token: str = ""
    """Ends every row in the training, empty for that of the tokenizer, `auto` for that of the chat template."""
    loss_on: str = ""


@dataclass(frozen=True)
class Measured:
    """What a tokenizer makes of a dataset. `missing` is why it cannot be used, `unfit` why nothing can be learned from the rows."""

    has_chat_template: bool | None = None
    tokens: dict[str, TokenFigures | None] = field(default_factory=dict)
    sample: str = ""
    missing: str = ""
    unfit: str = ""
    end: str = ""
    """The tokens that end a generation, as text."""
    not_checked: str = ""
    """What could not be decided of the tokens that are learned."""
    last_special: str = ""
    """The special token that most counted rows end with, but for text behind it."""


@dataclass(frozen=True)
class DataReport:
    """What is known of a prepared dataset before anything trains on it."""

    source: str
    layout: str
    splits: dict[str, SplitFigures]
    overlap: int
    """Held-out rows that are trained on, too, but for white space, case and the form of Unicode."""
    compared: int
    """Rows of each split that were compared, the first ones."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows of the source that were left out, by the reason."""
    questions: str = ""
    """What became of columns with questions and answers: `messages`, or `text` with a separator."""
    by_answers: bool = False
    """Whether each answer to learn is a row, because messages have the weight 0."""
    dropped_columns: tuple[str, ...] = ()
    unread_files: tuple[str, ...] = ()
    model: str = ""
    max_length: int = 0
    has_chat_template: bool | None = None
    """None without a tokenizer."""
    tokens_missing: str = ""
    """Why no tokens were counted."""
    findings: tuple[Finding, ...] = ()
    """The verdict, the worst first."""
    sample: str = ""
    """The beginning and the end of the first row as the model will see it, or, without a tokenizer, as it is stored."""

    def as_details(self) -> dict[str, Any]:
        """Return the figures for a receipt: no rows, and nothing that the receipt has elsewhere."""
        figures = asdict(self) | {"findings": [asdict(found) for found in self.findings]}
        return {name: figures[name] for name in _IN_RECEIPT if figures[name] not in (None, "", 0, [])}


_IN_RECEIPT = ("splits", "findings", "overlap", "compared", "model", "max_length", "has_chat_template", "tokens_missing")


def shortened(text: str) -> str:
    """Return a text without its middle, if it is longer than a sample: its end shows what the model learns to stop with."""
    if len(text) <= MAX_SAMPLE:
        return text
    return f"{text[: MAX_SAMPLE - len(_LEFT_OUT) - _SAMPLE_END]}{_LEFT_OUT}{text[-_SAMPLE_END:]}"


def token_figures(totals: list[int], **numbers: int) -> TokenFigures | None:
    """Return the figures of these numbers of tokens, and the other `numbers` of TokenFigures; None without any."""
    if not totals:  # no row, no quantiles
        return None
    ordered = sorted(totals)
    return TokenFigures(len(ordered), _percentile(ordered, 50), _percentile(ordered, 95), ordered[-1], **numbers)


def _percentile(ordered: list[int], percent: int) -> int:
    """Return the smallest value that is not exceeded by `percent` of all."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]
