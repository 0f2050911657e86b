"""Promotes an export if its evaluation is better than that of the model in use, and keeps that model otherwise.

Two runs may decide at once: the alias changes only if it still names what the decision compared with; else it is decided again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.checkpoints.errors import CheckpointError, PromotionConflict
from trainwright.checkpoints.promotion import CHAMPION, Alias, AliasRecord, Promotion, check_figures
from trainwright.evaluation.figures import OF_TRAINING, is_of_rows, trained_mark
from trainwright.steps.checkpoints.evaluation_files import BASE, figures_of
from trainwright.steps.promotion.champion import remember_rejection
from trainwright.steps.requests import PromoteModel
from trainwright.text.text_input import is_number

DATA, ROWS = "dataset_digest", "rows_digest"
"""What the figures of an evaluation were measured on: figures of other data are not compared."""
_OTHER_ROWS = (
    "the rows, the tokenizer, its chat template, loss_on, the number of rows, or for preferences the base model differ; "
)
_TASKS = ("few_shot", "task_limit")
"""What the figures of a public task depend on."""
_TRAINED_ROWS = (
    "prepare the dataset with drop_overlap, which leaves these rows out of the training, or promote with allow_trained_rows"
)
_TRIES = 5
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gate:
    """When a candidate is promoted: `rule` is better or always. `metric` is a figure of both evaluations, by which the candidate must
    be better, by `margin` at least.

    With the rule always nothing is compared. Without a model in use, a candidate is promoted if it is better than its base model, or
    if that was not measured. A figure of held-out rows that are trained on, too, justifies no promotion unless they are allowed.
    """

    rule: str = "better"
    metric: str = "loss"
    greater_is_better: bool = False
    margin: float = 0.0
    allow_trained_rows: bool = False

    def __post_init__(self) -> None:
        if self.rule not in ("better", "always"):
            raise ValueError(f"rule: {self.rule!r}: expected better or always")
        if self.margin < 0:
            raise ValueError(f"margin: {self.margin} must not be negative")


@dataclass(frozen=True)
class Verdict:
    """Whether the candidate was promoted, and why; `champion` is what the alias names now, `previous` what it named before: empty if
    it names, or named, nothing.
    """

    promoted: bool
    reason: str
    champion: str
    previous: str = ""
    champion_digest: str = ""


def promote(request: PromoteModel) -> Verdict:
    """Promote as asked, see `promote_if_better`. The result of an evaluation may stand for its figures.

    A training that is kept out is remembered, see `rejected`.
    """
    request = with_figures(request)
    verdict = promote_if_better(
        request.export_uri,
        request.checkpoint_uri,
        request.checkpoint_digest,
        evaluation=request.evaluation,
        champion_evaluation=request.champion_evaluation or None,
        champion_digest=request.champion_digest,
        alias=request.alias,
        gate=Gate(request.rule, request.metric, request.greater_is_better, request.margin, request.allow_trained_rows),
    )
    if not verdict.promoted:
        remember_rejection(request, verdict.champion_digest, verdict.reason)
    return verdict


def with_figures(request: PromoteModel) -> PromoteModel:
    """Return the request with the figures in place of whole results of evaluations, whose pages no step needs."""
    evaluations = {name: _flat(getattr(request, name)) for name in ("evaluation", "champion_evaluation")}
    return request.having(**evaluations)


def _flat(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    return figures_of(evaluation) if {"before", "after", "dataset_digest"} <= set(evaluation) else evaluation


def promote_if_better(
    export_uri: str,
    uri: str,
    digest: str,
    *,
    evaluation: Mapping[str, Any],
    champion_evaluation: Mapping[str, Any] | None = None,
    champion_digest: str = "",
    alias: str = CHAMPION,
    gate: Gate = Gate(),
) -> Verdict:
    """Let the alias below `export_uri`, the folder of all exports, name the export at `uri` if the gate allows it.

    `evaluation` are the candidate's figures. `champion_evaluation` are those of the export with the digest `champion_digest`, measured
    alike: the same rows and tokens for a loss, the same settings for a task. Without them, the figures that were recorded at its
    promotion count, if they were measured alike.
    Promoting what is named already changes nothing. Raises FigureNotFinite, whatever the rule, CheckpointError if the figures are
    missing or cannot be compared, PromotionConflict if the alias changes at every try, ValueError, StorageError.
    """
    check_figures(uri, evaluation)
    named = Alias(export_uri, alias)
    for attempt in range(1, _TRIES + 1):
        record = named.read()
        current = record.current if record is not None else None
        if current is not None and current.manifest == digest:  # by an earlier attempt of this step
            return Verdict(True, "it is promoted already", current.uri, _previous(record))
        measured = _champions_figures(current, champion_evaluation, champion_digest)
        is_better, reason = _decide(gate, evaluation, measured, current)
        if not is_better:
            kept = (current.uri, current.manifest) if current is not None else ("", "")
            return Verdict(False, reason, kept[0], _previous(record), kept[1])
        try:
            expected = current.manifest if current is not None else ""
            changed = named.promote(uri, digest=digest, expected=expected, evaluation=dict(evaluation), reason=reason)
        except PromotionConflict:  # another one was promoted since the record was read: compare with that one
            if attempt == _TRIES:
                raise
            log.info("event=promotion_decided_again alias=%s attempt=%d", alias, attempt)
            continue
        return Verdict(True, reason, changed.current.uri, _previous(changed))
    raise AssertionError("unreachable")


def _champions_figures(current: Promotion | None, measured: Mapping[str, Any] | None, digest: str) -> Mapping[str, Any]:
    """Return the measured figures if they are of the current champion: another one may have been promoted since."""
    if current is None:
        return {}
    return measured if measured and (not digest or digest == current.manifest) else current.evaluation


def _decide(
    gate: Gate, evaluation: Mapping[str, Any], champions: Mapping[str, Any], current: Promotion | None
) -> tuple[bool, str]:
    if gate.rule == "always":
        return True, "promoted without comparison"
    own = _figure(evaluation, gate.metric, "the candidate's evaluation")
    if not gate.allow_trained_rows and is_of_rows(gate.metric) and (mark := trained_mark(evaluation)):
        return False, f"not compared: {gate.metric} {own:.6g} is of rows of which {mark}; {_TRAINED_ROWS}"
    if current is None:
        return _decide_first(gate, own, evaluation)
    _check_measured_alike(gate.metric, evaluation, champions, current.uri)
    champion = _figure(champions, gate.metric, f"the evaluation of {current.uri}")
    if not math.isfinite(champion):  # any number is better
        return True, f"better: {gate.metric} {own:.6g} against {champion}, which is not finite"
    gain = own - champion if gate.greater_is_better else champion - own
    compared = f"{gate.metric} {own:.6g} against {champion:.6g}"
    if gain <= 0 or (gain < gate.margin and not math.isclose(gain, gate.margin)):
        needed = f", a margin of {gate.margin:g} is required" if gate.margin else ""
        return False, f"not better: {compared}{needed}"
    return True, f"better: {compared}"


def _decide_first(gate: Gate, own: float, evaluation: Mapping[str, Any]) -> tuple[bool, str]:
    """Without a model in use, the base model is what a candidate is compared with, if its figure is known."""
    bases = evaluation.get(BASE)
    base: Any = bases.get(gate.metric) if isinstance(bases, dict) else None
    if not is_number(base):  # there is no figure to compare with
        return True, f"the first one: {gate.metric} {own:.6g}"
    compared = f"{gate.metric} {own:.6g} against {base:.6g} of the base model"
    if (own - base if gate.greater_is_better else base - own) <= 0:
        return False, f"not better: {compared}"
    return True, f"the first one: {compared}"


def _check_measured_alike(metric: str, evaluation: Mapping[str, Any], champions: Mapping[str, Any], champion: str) -> None:
    """Raise CheckpointError if the two evaluations say that the metric was measured on different things, or only one says on what."""
    differs = {name: (champions.get(name), evaluation.get(name)) for name in _depends_on(metric)}
    differs = {name: pair for name, pair in differs.items() if pair[0] != pair[1]}
    if DATA in differs and not all(differs[DATA]):  # figures from elsewhere, of which nobody says what they were measured on
        differs.pop(DATA)
    if not differs:
        return
    name, (theirs, own) = next(iter(differs.items()))
    how = _OTHER_ROWS if name == ROWS and theirs and own else ""
    raise CheckpointError(
        f"{metric} of {champion} was not measured as the candidate's: {name} is {_said(theirs)} there and {_said(own)} here; {how}"
        "evaluate both with the same settings on the same held-out data, and pass champion_evaluation, or promote to another alias"
    )


def _depends_on(metric: str) -> tuple[str, ...]:
    if is_of_rows(metric):
        return (DATA, ROWS)
    return (DATA, *_TASKS) if "/" in metric else (DATA,)


def _said(value: Any) -> str:
    return "not known" if value is None else str(value)


def _figure(evaluation: Mapping[str, Any], metric: str, where: str) -> float:
    value = evaluation.get(metric)
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = ", ".join(sorted(name for name, each in evaluation.items() if isinstance(each, int | float))) or "none"
        hint = (
            f"; it is of training rows, since the dataset has no held-out ones: hold some out (test_fraction), or compare {training!r}"
            if (training := f"{OF_TRAINING}{metric}") in evaluation
            else ""
        )
        raise CheckpointError(f"{where} has no number {metric!r}; its numbers: {known}{hint}")
    return float(value)


def _previous(record: AliasRecord | None) -> str:
    return record.history[0].uri if record is not None and record.history else ""
