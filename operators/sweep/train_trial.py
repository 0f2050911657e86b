"""Train one trial of a sweep in a TrainJob of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.train_job import TrainJobOperator
from trainwright.operators.values.rendered_values import parse_object

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainwright.steps.training.trials import Trial


OUTCOME = "outcome"
"""Key of the XCom with the outcome of a trial, also of one that failed."""


class TrainTrialOperator(TrainJobOperator):
    """As TrainJobOperator, for the trials of a plan: ``TrainTrialOperator.partial(...).expand(trial=plan.output)``.

    Each trial has a TrainJob and a folder of its own, and its settings replace those of the same names. A task whose training fails
    has failed, and one that was stopped early is skipped; in both cases the XCom `outcome` says why, for PickTrialOperator.

    :param trial: one of the trials that PlanTrialsOperator returns; other parameters are those of TrainJobOperator.
    :return: as TrainJobOperator. The XCom `outcome` has index, settings, trainjob, metrics (numbers), and error, if any.
    """

    settings: dict[str, Any] | str | None
    template_fields = (*TrainJobOperator.template_fields, "trial")

    def __init__(self, *, trial: dict[str, Any] | str, **kwargs: Any):
        super().__init__(**kwargs)
        self.trial = trial
        self.check_values(vars(self))
        if not self.wait_for_completion:
            raise ValueError("wait_for_completion: the task of a trial waits for its training, whose outcome it has")

    @fail_fast()
    def execute(self, context: Context) -> Any:
        return self._with_outcome(context, partial(super().execute, context))

    @fail_fast()
    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        return self._with_outcome(context, partial(super().execute_complete, context, event))

    @fail_fast()
    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        resume = partial(super().resume_execution, next_method, next_kwargs, context)
        return resume() if hasattr(self, next_method) else self._with_outcome(context, resume)

    def request(self, run: Any = None) -> Any:
        """The request with the settings of the trial. Raises ValueError for a trial that is none."""
        request = super().request(run)
        # Parsed again: the settings of the trial may have credentials.
        return type(request).parse(request.having(settings={**request.settings, **self._parsed().settings}))

    def _parsed(self) -> Trial:
        from trainwright.steps.training.trials import Trial

        return Trial.model_validate(parse_object("trial", self.trial))

    def _with_outcome(self, context: Context, enter: Callable[[], Any]) -> Any:
        """Return the result of an entry of Airflow, and push the outcome, also that of a failure.

        Raises ValueError if the trial is not that of this map index, whose folder and TrainJob it would take.
        """
        from trainwright.steps.training.trials import failed_outcome, outcome_of

        trial, ti = self._parsed(), context["ti"]
        if trial.index != getattr(ti, "map_index", -1):
            raise ValueError(f"trial: map index {ti.map_index} got trial {trial.index}; expand the operator over the whole plan")
        try:
            result = enter()
        except Exception as error:  # the best trial is picked among all outcomes
            cause = getattr(error, "error", None) or error.__cause__ or error
            ti.xcom_push(key=OUTCOME, value=failed_outcome(trial, cause).model_dump())
            raise
        if self.entry is not None and self.entry.result is not None:
            ti.xcom_push(key=OUTCOME, value=outcome_of(trial, self.entry.result).model_dump())
        return result
