"""Reports on a prepared dataset, and refuses one on which the training would fail or learn nothing."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainwright.initializers.data_report.figures import DataReport, Finding, Measured, SplitFigures, shortened
from trainwright.initializers.data_report.findings import findings
from trainwright.initializers.data_report.measure import first_row
from trainwright.initializers.data_report.model_tokenizer import TokenizerMissing, measure_with_model, shown
from trainwright.initializers.dataset import TEST, TRAIN
from trainwright.initializers.errors import InitializerError
from trainwright.initializers.layouts import LAYOUTS
from trainwright.initializers.report_modes import ReportMode
from trainwright.initializers.report_options import ReportOptions
from trainwright.initializers.same_rows import MAX_COMPARED, compare_rows
from trainwright.initializers.trainer_rows import IMITATION
from trainwright.storage.transfer import disk_errors
from trainwright.workspace.receipt import Receipt

log = logging.getLogger(__name__)


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
    if not model_uri or mode == "off":
        return Measured(missing="no model was named" if not model_uri else "report_mode=off")
    try:
        found = measure_with_model(folder, rows, model_uri, options.max_length, options.end_token, options.loss_on)
    except TokenizerMissing as error:
        if mode == "required":
            raise InitializerError(
                f"report_mode=required, but the tokenizer of {shown(model_uri)} cannot be used: {error}"
            ) from error
        return Measured(missing=str(error))
    if not found.unfit:
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
