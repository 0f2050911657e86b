"""Reports on a prepared dataset, and refuses one on which the training would fail or learn nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.initializers.columns import IMITATION
from trainwright.initializers.data_report.figures import DataReport, Finding, Measured, SplitFigures, TokenFigures, shortened
from trainwright.initializers.data_report.model_tokenizer import TokenizerMissing, measure_with_model, shown
from trainwright.initializers.data_report.token_counts import first_row
from trainwright.initializers.dataset import TEST, TRAIN
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.layouts import LAYOUTS
from trainwright.initializers.report_modes import ReportMode
from trainwright.initializers.report_options import ReportOptions
from trainwright.initializers.same_rows import MAX_COMPARED, compare_rows
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.receipt import Receipt

log = logging.getLogger(__name__)
_WARN_SHARE, _REFUSE_SHARE = 0.05, 0.5
_TRAIN_SPLIT, _HELD_OUT_SPLIT = "train", "test"
NEVER_STOPS = "never_stops"


class DataUnfit(InitializerError):
    """The training would fail on these rows with this model, or learn nothing; the message says what to change."""


def report_dataset(folder: Path, receipt: Receipt, options: ReportOptions) -> DataReport:
    """Report on the dataset prepared in a folder.

    A tokenizer that cannot be fetched is no error unless the report is required: the report says why.
    Raises DataUnfit, InitializerError, BadUri, StorageError.
    """
    with disk_errors(folder):
        return _reported(folder, receipt, options)


def with_report(receipt: Receipt, report: DataReport) -> Receipt:
    """Return a receipt with the figures of a report."""
    return receipt.model_copy(update={"details": {**receipt.details, "report": report.as_details()}})


def _reported(folder: Path, receipt: Receipt, options: ReportOptions) -> DataReport:
    model_uri, max_length, mode = options.model_uri, options.max_length, options.report_mode
    rows = {TRAIN: int(receipt.details["train_rows"]), TEST: int(receipt.details["test_rows"])}
    found = _measured(folder, rows, options)
    *duplicates, overlap = compare_rows(folder / TRAIN, folder / TEST)
    splits = {
        name.removesuffix(".jsonl"): SplitFigures(count, same, found.tokens.get(name))
        for (name, count), same in zip(rows.items(), duplicates, strict=True)
        if count
    }
    layout = str(receipt.details.get("layout", ""))
    verdict = _verdict(splits, overlap, found, layout, model=shown(model_uri), max_length=max_length, mode=mode)
    report = DataReport(
        source=receipt.source,
        layout=layout,
        splits=splits,
        findings=verdict,
        overlap=overlap,
        compared=min(max(rows.values()), MAX_COMPARED),
        dropped=_dropped(receipt.details),
        questions=str(receipt.details.get("questions", "")),
        by_answers=bool(receipt.details.get("by_answers")),
        dropped_columns=tuple(receipt.details.get("dropped_columns", ())),
        unread_files=tuple(receipt.details.get("unread_files", ())),
        model=shown(model_uri),
        max_length=max_length,
        has_chat_template=found.has_chat_template,
        tokens_missing=found.missing,
        sample=shortened(found.sample or json.dumps(first_row(folder / TRAIN), ensure_ascii=False)),
    )
    _log(report)
    return report


def _measured(folder: Path, rows: dict[str, int], options: ReportOptions) -> Measured:
    """Return what the model's tokenizer makes of the files, or why it is `missing`. Raises DataUnfit, InitializerError, BadUri."""
    model_uri, mode = options.model_uri, options.report_mode
    if not model_uri or mode == "off":  # nothing to measure with
        return Measured(missing="no model was named" if not model_uri else "report_mode=off")
    try:
        found = measure_with_model(folder, rows, model_uri, options.max_length, options.end_token, options.loss_on)
    except TokenizerMissing as error:  # only `required` depends on it
        if mode == "required":
            raise InitializerError(
                f"report_mode=required, but the tokenizer of {shown(model_uri)} cannot be used: {error}"
            ) from error
        return Measured(missing=str(error))
    if not found.unfit:  # the training can begin
        return found
    if mode != "warn":
        raise DataUnfit(f"{found.unfit}; report_mode=warn only reports it")
    log.warning("event=rows_may_fail reason=%r", found.unfit)
    return Measured(missing=found.unfit)


def _verdict(
    splits: dict[str, SplitFigures], overlap: int, found: Measured, layout: str, *, model: str, max_length: int, mode: ReportMode
) -> tuple[Finding, ...]:
    """Return what was found. Raises DataUnfit for what is refused, which is a warning with report_mode=warn."""
    is_imitated = layout not in LAYOUTS or LAYOUTS[layout].rows in IMITATION
    verdict = findings(splits, overlap, found, model=model, max_length=max_length, is_imitated=is_imitated)
    kept = []
    for each in verdict:
        if each.severity == "refused" and mode != "warn":
            raise DataUnfit(f"{each.text}; report_mode=warn only reports it")
        kept.append(replace(each, severity="warning") if each.severity == "refused" else each)
    return tuple(kept)


def _dropped(details: dict[str, Any]) -> dict[str, int]:
    same, unlearned = int(details.get("same_answers", 0)), int(details.get("unlearned_rows", 0))
    found = {
        "no answer to learn": unlearned,
        "no text": int(details.get("empty_rows", 0)) - same - unlearned,
        "the same answer chosen and rejected": same,
        "held out, too (drop_overlap)": int(details.get("overlapping_rows", 0)),
    }
    return {reason: count for reason, count in found.items() if count}


def _log(report: DataReport) -> None:
    for name, split in report.splits.items():
        tokens = split.tokens
        counted = f" p50={tokens.p50} p95={tokens.p95} longest={tokens.longest} cut={tokens.cut}" if tokens else ""
        emptied = f" emptied={tokens.emptied}" if tokens else ""
        log.info("event=data_report split=%s rows=%d duplicates=%d%s%s", name, split.rows, split.duplicates, counted, emptied)
    log.info(
        "event=data_sample layout=%s questions=%s seen_by_model=%s text=%r",
        report.layout,
        report.questions or "none",
        not report.tokens_missing,
        report.sample,
    )
    for found in report.findings:
        level = logging.INFO if found.severity == "note" else logging.WARNING
        log.log(level, "event=data_finding severity=%r name=%s text=%r", found.severity, found.name, found.text)


def findings(
    splits: Mapping[str, SplitFigures], overlap: int, found: Measured, *, model: str, max_length: int, is_imitated: bool
) -> Iterator[Finding]:
    """Yield what is found, the worst first.

    Args:
        splits: The figures of each split.
        overlap: Held-out rows that are trained on, too.
        found: What the tokenizer makes of the rows.
        model: The model of the tokenizer.
        max_length: Tokens of a row in the training; 0 if it is not known.
        is_imitated: Whether the rows are for `sft`, which can train with another end token.
    """
    tokens = splits[_TRAIN_SPLIT].tokens
    if found.missing or tokens is None:
        text = f"whether answers are cut, and whether the model learns to stop: {found.missing or 'no tokens were counted'}"
        yield Finding("not checked", "answers", text)
    else:
        yield from _of_lengths(tokens, max_length)
        if found.not_checked:
            text = f"whether the model learns to stop: {found.not_checked}; the training fails at its start if there is none"
            yield Finding("not checked", NEVER_STOPS, text)
        elif not tokens.ended and tokens.cut < tokens.counted:
            yield Finding("warning", NEVER_STOPS, _never_stops(model, found, is_imitated=is_imitated))
    if overlap:
        rows = splits[_HELD_OUT_SPLIT].rows
        text = (
            f"{overlap:,} of {rows:,} held-out rows are trained on, too (case and white space aside): figures on them are too good; "
            "drop_overlap among the settings of the data leaves them out of the training"
        )
        yield Finding("warning" if overlap >= _WARN_SHARE * rows else "note", "overlap", text)


def _of_lengths(tokens: TokenFigures, max_length: int) -> Iterator[Finding]:
    if not max_length:
        yield Finding("not checked", "cut_answers", "whether answers are cut: max_length of the training is not known")
    elif tokens.cut_answers >= _WARN_SHARE * tokens.counted:
        text = (
            f"{tokens.cut_answers:,} of {tokens.counted:,} rows have more than max_length={max_length:,} tokens and lose the end of "
            f"the answer, at which the model learns to stop; max_length={tokens.longest:,} keeps all rows whole"
        )
        is_most = tokens.cut_answers >= _REFUSE_SHARE * tokens.counted
        yield Finding("refused" if is_most else "warning", "cut_answers", text)


def _never_stops(model: str, found: Measured, *, is_imitated: bool) -> str:
    """Say that no row ends as the model generates, and what to do."""
    text = f"no row teaches the model to stop: none has {found.end}, which ends what {model} generates"
    if found.last_special and is_imitated:
        token = json.dumps(found.last_special, ensure_ascii=False)
        return (
            f"{text}; rows end with {found.last_special}: set end_token to it, or to auto, among the settings of the training "
            f'({{"settings": {{"end_token": {token}}}}}), or use a model whose template ends its turns so'
        )
    first = "; train with sft and end_token=auto first, or" if found.last_special else ";"
    return f"{text}{first} use a model whose template ends turns with its end token"
