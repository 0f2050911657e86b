"""Pick the best trial of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.values.rendered_values import parse_flag, parse_list
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PickTrialOperator(WorkspaceOperator):
    """Pick the trial whose training reported the best value. Other trials are only listed, unless none can be compared.

    With the trigger rule ALL_DONE it runs although trials have failed, or were stopped early.

    :param outcomes: XCom `outcome` of each TrainTrialOperator, whether it succeeded or not.
    :param metric: a reported metric, or a number in the results of the training function.
    :param greater_is_better: whether a greater value is better.
    :param trials: the plan, as PlanTrialsOperator returns it: a trial of it that has no outcome is listed as failed.
    :param workspace: claim with the workspace, pvc://CLAIM[/FOLDER], which pods mount if the worker does not.
    :param workspace_path: where the worker mounts the workspace; empty if it does not.
    :param runs_on: worker, cluster (in a pod that mounts the claim, so that the worker needs neither the volume nor the room), or
        auto: the worker if workspace_path is set, else the cluster. Without both nothing is recorded in a workspace.
    :param job: settings of the pods on the cluster, as in TrainJobOperator: runtime (default: workspace-step), image, env,
        resources_per_node, node_selector, tolerations, queue_name, run_timeout_seconds, on_cancel ...
    :param run_id: id of the run, as in TrainJobOperator; defaults to DAG/RUN_ID of the DAG run.
    :param namespace: namespace of these pods; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes`; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: connection with the token of the hub.
    :return: index (for trial_index of ExportCheckpointOperator and EvaluateOperator), trainjob, value, settings, and summary, all
        trials as Markdown, best first.
    """

    template_fields = ("outcomes", "metric", "greater_is_better", "trials", *WorkspaceOperator.template_fields)

    def __init__(
        self,
        *,
        outcomes: list[Any] | str,
        metric: str = "eval_loss",
        greater_is_better: bool | str = False,
        trials: list[Any] | str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.outcomes, self.metric, self.greater_is_better, self.trials = outcomes, metric, greater_is_better, trials

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.trials import best_trial_line, rank_trials, trials_summary

        self.check_places()
        found = self._outcomes()
        ranked = rank_trials(found, self.metric, greater_is_better=parse_flag("greater_is_better", self.greater_is_better))
        best, others = ranked[0], [one.index for one in found if one is not ranked[0]]
        if self.workspace or self.workspace_path:
            with self.steps(context) as steps:
                steps("end-trials", {"indices": others, "run_id": self.run_arguments(context)["run_id"]})
        self.log.info("%s", best_trial_line(found, ranked, self.metric))
        chosen = {"index": best.index, "trainjob": best.trainjob, "value": best.metrics[self.metric], "settings": best.settings}
        return {**chosen, "summary": trials_summary(found, ranked, self.metric)}

    def _outcomes(self) -> list[Any]:
        """The outcomes in the order of the plan. Raises ValueError."""
        from trainwright.steps.trials import Trial, TrialOutcome

        found = {one.index: one for one in map(TrialOutcome.model_validate, parse_list("outcomes", self.outcomes))}
        for trial in map(Trial.model_validate, parse_list("trials", self.trials)):
            lost = TrialOutcome(
                index=trial.index, settings=trial.settings, trainjob="", error="its task has no outcome; see its log"
            )
            found.setdefault(trial.index, lost)
        return [found[index] for index in sorted(found)]
