"""Shows a report as Markdown and as HTML, for the pages of Kubeflow Pipelines and Airflow. Texts of others stay texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import NamedTuple

from trainwright.initializers.data_report.figures import DataReport, SplitFigures
from trainwright.storage.errors import UnsafeFile
from trainwright.storage.plain_files import read_plain
from trainwright.storage.transfer import write_bytes
from trainwright.text.foreign_texts import escaped, escaped_advice, fenced, table
from trainwright.workspace.run_record import DATASET_REPORTS

_TITLE = "Dataset"
_STYLE = (
    "body{font:14px sans-serif;margin:1em}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}pre{background:#f6f6f6;padding:.8em;white-space:pre-wrap;overflow-wrap:anywhere}"
)
_MAX_LISTED = 20


class _Parts(NamedTuple):
    """What both pages show: a table of the splits, lines, and the sample with its heading."""

    header: tuple[str, ...]
    splits: list[tuple[str, ...]]
    notes: list[str]
    sample_heading: str


def markdown_page(report: DataReport) -> str:
    """Return the report as Markdown."""
    parts = _parts(report)
    rows = [tuple(escaped(cell) for cell in row) for row in parts.splits]
    notes = "\n".join(f"- {escaped_advice(note)}" for note in parts.notes)
    blocks = [f"## {_TITLE} {escaped(report.source)}", table(parts.header, rows), notes]
    return "\n\n".join([*blocks, f"**{parts.sample_heading}**", fenced(report.sample)]) + "\n"


def html_page(report: DataReport) -> str:
    """Return the report as an HTML page that loads nothing."""
    parts = _parts(report)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in parts.header)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in parts.splits)
    notes = "".join(f"<li>{escape(note)}</li>" for note in parts.notes)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{_TITLE}</title><style>{_STYLE}</style></head><body>'
        f"<h2>{_TITLE} {escape(report.source)}</h2><table><tr>{head}</tr>{rows}</table><ul>{notes}</ul>"
        f"<h3>{escape(parts.sample_heading)}</h3><pre>{escape(report.sample)}</pre></body></html>\n"
    )


def write_pages(report: DataReport, folder: Path) -> None:
    """Write both pages and the figures into a folder, as `dataset-report.md`, `.html` and `.json`, unless they are there.

    Raises StorageError.
    """
    figures = json.dumps(report.as_details(), ensure_ascii=False, indent=1)
    for name, page in zip(DATASET_REPORTS, (markdown_page(report), html_page(report), figures), strict=True):
        path, content = folder / name, page.encode("utf-8", "replace")
        with suppress(OSError, UnsafeFile):
            if read_plain(path, len(content), folder) == content:
                continue
        write_bytes(path, content)


def _parts(report: DataReport) -> _Parts:
    header: tuple[str, ...] = ("split", "rows", "duplicates")
    has_tokens = not report.tokens_missing
    if has_tokens:
        header += ("tokens p50", "p95", "longest", *(("cut", "emptied") if report.max_length else ()))
    splits = [(name, *_cells(split, has_tokens, report.max_length)) for name, split in report.splits.items()]
    heading = "First row as the model sees it" if has_tokens else "First row"
    return _Parts(header, splits, list(_notes(report)), heading)


def _cells(split: SplitFigures, has_tokens: bool, max_length: int) -> tuple[str, ...]:
    numbers = [split.rows, split.duplicates]
    if has_tokens and split.tokens is not None:
        tokens = split.tokens
        numbers += [tokens.p50, tokens.p95, tokens.longest, *([tokens.cut, tokens.emptied] if max_length else [])]
    return tuple(f"{number:,}" for number in numbers)


def _notes(report: DataReport) -> Iterator[str]:
    yield from (f"{found.severity}: {found.text}" for found in report.findings)
    yield f"layout: {report.layout}"
    if report.questions:
        yield _questions_note(report)
    if report.by_answers:
        yield "some messages have the weight 0: each other answer is a row with all that comes before, and only the answer is learned"
    yield from (
        f"{count:,} {'row was' if count == 1 else 'rows were'} dropped: {reason}" for reason, count in report.dropped.items()
    )
    if report.compared < max(split.rows for split in report.splits.values()):
        yield f"duplicates were looked for in the first {report.compared:,} rows of each split"
    if report.dropped_columns:
        yield f"columns that training does not read: {_listed(report.dropped_columns)}"
    if report.unread_files:
        yield f"files that were not read, since others are named for training: {_listed(report.unread_files)}"
    yield from _model_notes(report)


def _questions_note(report: DataReport) -> str:
    """Say how the model sees questions and answers, and why."""
    if report.questions == "messages":
        return "questions and answers: messages, which the model's chat template renders; the answer is learned"
    if report.has_chat_template is None:
        reason = f"whether the model has a chat template is not known: {report.tokens_missing}"
    else:
        reason = "the trainer renders no chat template" if report.has_chat_template else "the model has no chat template"
    return f"questions and answers: texts with a blank line between, or with headings ({reason}); prompts need the same later"


def _model_notes(report: DataReport) -> Iterator[str]:
    if report.tokens_missing:  # all other notes are about tokens
        yield f"tokens were not counted: {report.tokens_missing}"
        return
    yield f"tokens: of {report.model}, with its special tokens; chat template: {'yes' if report.has_chat_template else 'none'}"
    for name, split in report.splits.items():
        if split.tokens is not None and split.tokens.counted < split.rows:
            yield f"{name}: tokens were counted in {split.tokens.counted:,} rows, evenly distributed"
    if report.max_length:
        yield f"cut: rows of more than {report.max_length:,} tokens (max_length); emptied: those whose prompt alone is that long"
    else:
        yield "max_length is not known, so neither is how many rows are cut"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
