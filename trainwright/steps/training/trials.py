"""Trials of a sweep: planned once for its run, trained one TrainJob each, and the best one picked by what the trainings reported.

The plan depends on its inputs alone, so a retried run adopts the jobs of the first try.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainwright.api.objects import name_of
from trainwright.jobs.diagnosis.errors import DeadlineExceeded, Diverged, RunTimeout, StepFailed, StoppedEarly, TrainJobError
from trainwright.jobs.wait.job_events import finite
from trainwright.jobs.wait.run_step import StepResult
from trainwright.steps.ends.retire import retire_run
from trainwright.steps.requests import PickTrial
from trainwright.text.foreign_texts import code, escaped, table
from trainwright.workspace import begin_run, run_folder

MOST_TRIALS = 500
_SAME_DRAWS = 100
"""Draws in a row that bring nothing new, after which a space is taken to be exhausted."""


class NoTrialSucceeded(TrainJobError):
    """Every trial of a sweep failed, or none reported the metric."""


class Trial(BaseModel):
    """One of the trainings of a sweep: its number (from 0), and the settings in which it differs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int = Field(ge=0, lt=MOST_TRIALS)
    settings: dict[str, Any] = {}

    @classmethod
    def parse(cls, text: str) -> Trial:
        """Parse the JSON of a trial. Raises ValueError."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            raise ValueError("trial: expected one of the trials that plan_trials returns, as JSON") from None


class TrialOutcome(BaseModel):
    """How a trial ended: the values that its training reported, or why it failed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    index: int
    settings: dict[str, Any]
    trainjob: str
    metrics: dict[str, float] = {}
    error: str = ""


class Range(BaseModel):
    """Numbers between `min` and `max`, drawn uniformly, with `log` so that each order of magnitude is as likely; whole numbers if both
    ends are."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    min: int | float
    max: int | float
    log: bool = False

    def draw(self, source: random.Random) -> int | float:
        if isinstance(self.min, int) and isinstance(self.max, int) and not self.log:
            return source.randint(self.min, self.max)
        low, high = (math.log(self.min), math.log(self.max)) if self.log else (self.min, self.max)
        value = source.uniform(low, high)
        drawn = math.exp(value) if self.log else value
        return round(drawn) if isinstance(self.min, int) and isinstance(self.max, int) else float(f"{drawn:.6g}")


def plan_trials(
    settings: Mapping[str, Any],
    *,
    trials: Sequence[Mapping[str, Any]] = (),
    space: Mapping[str, Any] | None = None,
    max_trials: int = 0,
    seed: int = 0,
    metric: str = "",
) -> list[Trial]:
    """Return the trials of a sweep, each with the common `settings` and its own.

    Args:
        settings: Settings of all trials.
        trials: The settings of each trial.
        space: Instead of trials: for each setting the list of its values, or a range {"min": ..., "max": ..., "log": true}. All
            combinations, or `max_trials` of them drawn by `seed`.
        max_trials: The maximum number of trials; 0 is all. Required for ranges.
        seed: Another one draws others.
        metric: What the trials are to be compared by. For one of an evaluation (eval_loss), the builtin trainer sft evaluates the
            held-out rows after each epoch, unless the settings say something else.

    Raises ValueError for no or both of trials and space, two equal trials, or more than 500.
    """
    if bool(trials) == bool(space):
        raise ValueError("set either trials (a list of settings) or space (values or a range of each setting)")
    if max_trials < 0:
        raise ValueError(f"max_trials: {max_trials} must not be negative")
    chosen = list(_listed(trials, max_trials)) if trials else _drawn(_dimensions(space or {}), max_trials, seed)
    if len(chosen) > MOST_TRIALS:
        raise ValueError(f"{len(chosen)} trials: at most {MOST_TRIALS} are possible; set max_trials, or fewer values")
    common = {"eval_strategy": "epoch", **settings} if metric.startswith("eval_") else settings
    return [Trial(index=index, settings={**common, **one}) for index, one in enumerate(chosen)]


def _listed(trials: Sequence[Mapping[str, Any]], max_trials: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, one in enumerate(trials):
        if not isinstance(one, Mapping):
            raise ValueError(f"trials[{number}]: {one!r} is not an object of settings")
        if (own := dict(one)) in found:
            raise ValueError(f"trials[{number}]: the same settings as trials[{found.index(own)}]; it would be trained twice")
        found.append(own)
    return found[: max_trials or None]


def _dimensions(space: Mapping[str, Any]) -> dict[str, list[Any] | Range]:
    found: dict[str, list[Any] | Range] = {}
    for name, values in space.items():
        if isinstance(values, list) and values:
            if twice := [value for at, value in enumerate(values) if value in values[:at]]:
                raise ValueError(f"space.{name}: {twice[0]!r} is there twice; it would be trained twice")
            found[name] = values
            continue
        try:
            found[name] = Range.model_validate(values)
        except ValidationError:
            raise ValueError(f"space.{name}: expected a list of values, or a range with min and max, not {values!r}") from None
        if found[name].min >= found[name].max or (found[name].log and found[name].min <= 0):  # type: ignore[union-attr]
            raise ValueError(f"space.{name}: {values!r}: min must be less than max, and with log greater than zero")
    return found


def _drawn(dimensions: dict[str, list[Any] | Range], max_trials: int, seed: int) -> list[dict[str, Any]]:
    """Return all combinations if they are few enough, else different ones by chance."""
    lists = {name: values for name, values in dimensions.items() if isinstance(values, list)}
    count = math.prod(len(values) for values in lists.values())
    if len(lists) == len(dimensions) and (not max_trials or count <= max_trials):
        return [_combination(lists, number) for number in range(min(count, MOST_TRIALS + 1))]
    if not max_trials:
        ranges = ", ".join(sorted(set(dimensions) - set(lists)))
        raise ValueError(f"max_trials: required with a range ({ranges})")
    source, fruitless = random.Random(seed), 0
    found: list[dict[str, Any]] = []
    while len(found) < min(max_trials, MOST_TRIALS + 1) and fruitless < _SAME_DRAWS:
        one = {
            name: values.draw(source) if isinstance(values, Range) else source.choice(values)
            for name, values in dimensions.items()
        }
        fruitless = fruitless + 1 if one in found else 0
        if not fruitless:
            found.append(one)
    return found


def _combination(lists: dict[str, list[Any]], number: int) -> dict[str, Any]:
    """Return one of all combinations; the last setting varies fastest."""
    found = {}
    for name, values in reversed(lists.items()):
        number, position = divmod(number, len(values))
        found[name] = values[position]
    return dict(reversed(found.items()))


def run_trial(trial: Trial, train: Callable[[], StepResult], *, fails: bool = False) -> tuple[TrialOutcome, StepResult]:
    """Train; a training that fails is an outcome of the sweep like any other, unless the trial `fails`.

    That is also one that diverges, takes longer than it may, or is stopped early.
    Raises the other errors of `run_step`: those in which the trial itself had no part.
    """
    try:
        result = train()
    except (StepFailed, Diverged, RunTimeout, StoppedEarly) as error:
        if fails:
            raise
        outcome = failed_outcome(trial, error)
        return outcome, StepResult(outcome.trainjob, "")
    return outcome_of(trial, result), result


def outcome_of(trial: Trial, result: StepResult) -> TrialOutcome:
    """Return the outcome of a trial whose training succeeded."""
    reported = {**result.metrics, **result.results_as_object()}
    metrics = {name: number for name, value in reported.items() if (number := _number(value)) is not None}
    return TrialOutcome(index=trial.index, settings=trial.settings, trainjob=result.trainjob, metrics=metrics)


def failed_outcome(trial: Trial, error: BaseException) -> TrialOutcome:
    """Return the outcome of a trial whose training failed or was stopped."""
    trainjob = error.trainjob if isinstance(error, StepFailed | Diverged | DeadlineExceeded | StoppedEarly) else None
    name = name_of(trainjob) if trainjob is not None else ""
    return TrialOutcome(index=trial.index, settings=trial.settings, trainjob=name, error=str(error) or type(error).__name__)


def begin_trials(workspace: Path, trials: Sequence[Trial], *, owner: str, run_id: str, dataset: str, model: str) -> None:
    """Record the folders of the trials as runs of their own, which refer to the prepared inputs.

    Raises WorkspaceError, StorageError.
    """
    for trial in trials:
        begin_run(workspace, run_folder(run_id, trial.index), run=run_id, owner=owner, dataset=dataset, model=model)


def end_trials(workspace: Path, indices: Sequence[int], *, run_id: str) -> None:
    """Record that these trials, all but the best, have ended: retention may delete their folders.

    Raises WorkspaceError, StorageError.
    """
    for index in indices:
        retire_run(None, workspace, run_id=run_id, namespace="", map_index=index)


class Picked(NamedTuple):
    """The best trial with its value, the numbers of the others, a line about the result, and all trials as Markdown."""

    best: TrialOutcome
    value: float
    others: list[int]
    line: str
    summary: str


def pick_trial(request: PickTrial, planned: Sequence[Trial] = ()) -> Picked:
    """Pick the best trial. Of those that were `planned`, one without an outcome is listed as failed.

    Raises NoTrialSucceeded, ValueError.
    """
    found = {one.index: one for one in map(TrialOutcome.model_validate, request.outcomes)}
    for trial in planned:
        lost = TrialOutcome(index=trial.index, settings=trial.settings, trainjob="", error="its task has no outcome; see its log")
        found.setdefault(trial.index, lost)
    outcomes, metric = [found[index] for index in sorted(found)], request.metric
    ranked = rank_trials(outcomes, metric, greater_is_better=request.greater_is_better)
    best = ranked[0]
    return Picked(
        best,
        best.metrics[metric],
        [one.index for one in outcomes if one is not best],
        best_trial_line(outcomes, ranked, metric),
        trials_summary(outcomes, ranked, metric),
    )


def rank_trials(outcomes: Sequence[TrialOutcome], metric: str, *, greater_is_better: bool = False) -> list[TrialOutcome]:
    """Return the trials that reported `metric`, best first; of equal ones the first planned. Raises NoTrialSucceeded."""
    ranked = [one for one in outcomes if not one.error and metric in one.metrics]
    if not ranked:
        failed = [one for one in outcomes if one.error]
        known = ", ".join(sorted({name for one in outcomes for name in one.metrics})) or "nothing"
        first = f"; the first failure: {failed[0].error.splitlines()[0]}" if failed else ""
        raise NoTrialSucceeded(
            f"{len(failed)} of {len(outcomes)} trials failed, and none reported {metric!r}; reported was: {known}{first}"
        )
    sign = -1 if greater_is_better else 1
    return sorted(ranked, key=lambda one: (sign * one.metrics[metric], one.index))


def trial_rows(outcomes: Sequence[TrialOutcome], ranked: Sequence[TrialOutcome], metric: str) -> list[tuple[str, ...]]:
    """Return a row for each trial, best first, failed ones last: rank, trial, TrainJob, value, settings."""
    others = [one for one in outcomes if one not in ranked]
    return [
        (
            str(rank) if one in ranked else "",
            str(one.index),
            one.trainjob,
            f"{one.metrics[metric]:.6g}" if one in ranked else (one.error.splitlines() or ["not reported"])[0],
            ", ".join(f"{name}={value}" for name, value in one.settings.items()),
        )
        for rank, one in enumerate([*ranked, *others], start=1)
    ]


def trials_summary(outcomes: Sequence[TrialOutcome], ranked: Sequence[TrialOutcome], metric: str) -> str:
    """Return all trials as a Markdown table, best first."""
    rows = [
        (rank, number, code(name), escaped(value), code(given))
        for rank, number, name, value, given in trial_rows(outcomes, ranked, metric)
    ]
    return f"## Trials\n\n{table(('rank', 'trial', 'TrainJob', escaped(metric), 'settings'), rows)}\n"


def best_trial_line(outcomes: Sequence[TrialOutcome], ranked: Sequence[TrialOutcome], metric: str) -> str:
    """Return the result of a sweep in one line."""
    best = ranked[0]
    value = f"{best.metrics[metric]:.6g}"
    return f"best: trial {best.index} with {metric} {value}, of {len(outcomes)} trials, {len(ranked)} of them comparable"


def _number(value: Any) -> float | None:
    return finite(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
