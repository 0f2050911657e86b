"""Reports on a prepared dataset, and refuses one on which the training would fail or learn nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from trainwright.initializers.data_report.figures import DataReport, SplitFigures, TokenFigures
from trainwright.initializers.data_report.measure import (
    MAX_COMPARED,
    RowUnfit,
    compare_rows,
    first_row,
    measure_tokens,
)
from trainwright.initializers.data_report.model_tokenizer import ModelTokenizer, TokenizerMissing, fetch_tokenizer
from trainwright.initializers.data_report.token_counts import is_conversational, row_text
from trainwright.initializers.dataset import TEST, TRAIN
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.report_options import ReportMode, ReportOptions
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.receipt import Receipt

log = logging.getLogger(__name__)
_SKIP = "; report_mode=warn only reports it"
_MAX_SAMPLE = 2000
"""Characters of the sample row."""


class DataUnfit(InitializerError):
    """The training would fail on these rows with this model, or learn nothing; the message says what to change."""


def report_dataset(folder: Path, receipt: Receipt, options: ReportOptions) -> DataReport:
    """Report on the dataset prepared in a folder.

    A tokenizer that cannot be fetched is no error unless the report is required: the report says why.
    Raises DataUnfit, InitializerError, BadUri, StorageError.
    """
    with disk_errors(folder):
        return _reported(folder, receipt, options.model_uri, options.max_length, options.report_mode)


def with_report(receipt: Receipt, report: DataReport) -> Receipt:
    """Return a receipt with the figures of a report."""
    return receipt.model_copy(update={"details": {**receipt.details, "report": report.as_details()}})


def _reported(folder: Path, receipt: Receipt, model_uri: str, max_length: int, mode: ReportMode) -> DataReport:
    row = first_row(folder / TRAIN)
    rows = {TRAIN: int(receipt.details["train_rows"]), TEST: int(receipt.details["test_rows"])}
    tokens: dict[str, TokenFigures | None] = dict.fromkeys(rows)
    tokenizer, missing = _tokenizer(model_uri, mode)
    if tokenizer is not None:
        try:
            tokens = _checked_tokens(folder, rows, row, tokenizer, _shown(model_uri), max_length)
        except DataUnfit as error:
            if mode != "warn":
                raise
            log.warning("event=rows_may_fail reason=%r", str(error))
            tokenizer, missing = None, str(error)
    *duplicates, overlap = compare_rows(folder / TRAIN, folder / TEST)
    report = DataReport(
        source=receipt.source,
        layout=str(receipt.details.get("layout", "")),
        splits={
            name.removesuffix(".jsonl"): SplitFigures(rows[name], found, tokens[name])
            for name, found in zip(rows, duplicates, strict=True)
            if rows[name]
        },
        overlap=overlap,
        compared=min(max(rows.values()), MAX_COMPARED),
        dropped=_dropped(receipt.details),
        dropped_columns=tuple(receipt.details.get("dropped_columns", ())),
        unread_files=tuple(receipt.details.get("unread_files", ())),
        model=_shown(model_uri),
        max_length=max_length,
        has_chat_template=tokenizer.has_chat_template if tokenizer else None,
        tokens_missing=missing,
        sample=_sample(tokenizer, row),
    )
    _log(report)
    return report


def _tokenizer(model_uri: str, mode: ReportMode) -> tuple[ModelTokenizer | None, str]:
    if not model_uri or mode == "off":
        return None, "no model was named" if not model_uri else "report_mode=off"
    try:
        return fetch_tokenizer(model_uri), ""
    except TokenizerMissing as error:
        shown = _shown(model_uri)
        if mode == "required":
            raise InitializerError(f"report_mode=required, but the tokenizer of {shown} cannot be used: {error}") from error
        log.warning("event=tokens_not_counted model=%s reason=%r", shown, str(error))
        return None, str(error)


def _checked_tokens(
    folder: Path, rows: dict[str, int], row: dict[str, Any], tokenizer: ModelTokenizer, model: str, max_length: int
) -> dict[str, TokenFigures | None]:
    """Return the tokens of each file. Raises DataUnfit."""
    _check_tokenizer(tokenizer, row, model)
    tokens = {name: _tokens(folder / name, count, tokenizer, model, max_length) for name, count in rows.items()}
    _check_left(tokens[TRAIN], model, max_length)
    return tokens


def _check_tokenizer(tokenizer: ModelTokenizer, row: dict[str, Any], model: str) -> None:
    if is_conversational(row) and not tokenizer.has_chat_template:
        raise DataUnfit(
            f"{model} has no chat template, but the rows are messages: use a model that was tuned for chats, or rows with "
            f"texts{_SKIP}"
        )
    if not is_conversational(row) and not tokenizer.eos:
        raise DataUnfit(f"the tokenizer of {model} names no eos_token, which ends every row: use another model{_SKIP}")


def _tokens(path: Path, rows: int, tokenizer: ModelTokenizer, model: str, max_length: int) -> TokenFigures | None:
    try:
        return None if not rows else measure_tokens(path, rows, tokenizer, max_length)
    except RowUnfit as error:
        raise DataUnfit(f"{error}; the training with {model} would fail there: change the row{_SKIP}") from error


def _check_left(tokens: TokenFigures | None, model: str, max_length: int) -> None:
    if tokens is not None and tokens.emptied == tokens.counted:
        raise DataUnfit(
            f"none of {tokens.counted} rows has anything left to learn from (num_samples=0): with the tokenizer of {model}, the "
            f"prompts alone fill max_length={max_length} (half of the rows have {tokens.p50} tokens and more); raise max_length, "
            f"or shorten the prompts{_SKIP}"
        )


def _shown(model_uri: str) -> str:
    """Return a URI without a query, which may be a signature."""
    return model_uri.partition("?")[0]


def _dropped(details: dict[str, Any]) -> dict[str, int]:
    same = int(details.get("same_answers", 0))
    found = {"no text": int(details.get("empty_rows", 0)) - same, "the same answer chosen and rejected": same}
    return {reason: count for reason, count in found.items() if count}


def _sample(tokenizer: ModelTokenizer | None, row: dict[str, Any]) -> str:
    text = json.dumps(row, ensure_ascii=False) if tokenizer is None else row_text(tokenizer, row)
    return text if len(text) <= _MAX_SAMPLE else f"{text[:_MAX_SAMPLE]} ..."


def _log(report: DataReport) -> None:
    for name, split in report.splits.items():
        tokens = split.tokens
        counted = f" p50={tokens.p50} p95={tokens.p95} longest={tokens.longest} cut={tokens.cut}" if tokens else ""
        emptied = f" emptied={tokens.emptied}" if tokens else ""
        log.info("event=data_report split=%s rows=%d duplicates=%d%s%s", name, split.rows, split.duplicates, counted, emptied)
    if report.overlap:
        log.warning("event=held_out_rows_are_trained_on rows=%d", report.overlap)
