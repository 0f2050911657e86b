"""The figures of a report: what is in the files of a prepared dataset, and what the training will make of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MAX_SAMPLE = 2000
"""Characters of a sample row."""
MAX_ANSWER = 1024 * 1024
"""Bytes of a `Measured` as it is passed on."""


@dataclass(frozen=True)
class TokenFigures:
    """The tokens of the rows of a split. Without `max_length`, it is not known how many rows are `cut` or `emptied`."""

    counted: int
    p50: int
    p95: int
    longest: int
    cut: int = 0
    emptied: int = 0


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


@dataclass(frozen=True)
class Measured:
    """What a tokenizer makes of a dataset. `missing` is why it cannot be used, `unfit` why nothing can be learned from the rows."""

    has_chat_template: bool | None = None
    tokens: dict[str, TokenFigures | None] = field(default_factory=dict)
    sample: str = ""
    missing: str = ""
    unfit: str = ""


@dataclass(frozen=True)
class DataReport:
    """What is known of a prepared dataset before anything trains on it."""

    source: str
    layout: str
    splits: dict[str, SplitFigures]
    overlap: int
    """Held-out rows that are trained on, too."""
    compared: int
    """Rows of each split that were compared, the first ones."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows of the source that were left out, by the reason."""
    dropped_columns: tuple[str, ...] = ()
    unread_files: tuple[str, ...] = ()
    model: str = ""
    max_length: int = 0
    has_chat_template: bool | None = None
    """None without a tokenizer."""
    tokens_missing: str = ""
    """Why no tokens were counted."""
    sample: str = ""
    """The beginning of the first row as the model will see it, or, without a tokenizer, as it is stored."""

    def as_details(self) -> dict[str, Any]:
        """Return the figures for a receipt: no rows, and nothing that the receipt has elsewhere."""
        figures = asdict(self)
        return {name: figures[name] for name in _IN_RECEIPT if figures[name] not in (None, "", 0)}


_IN_RECEIPT = ("splits", "overlap", "compared", "model", "max_length", "has_chat_template", "tokens_missing")


def token_figures(totals: list[int], cut: int, emptied: int) -> TokenFigures | None:
    """Return the figures of these numbers of tokens; None without any."""
    if not totals:
        return None
    ordered = sorted(totals)
    return TokenFigures(len(ordered), _percentile(ordered, 50), _percentile(ordered, 95), ordered[-1], cut, emptied)


def _percentile(ordered: list[int], percent: int) -> int:
    """Return the smallest value that is not exceeded by `percent` of all."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]
