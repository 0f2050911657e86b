"""Pick the best trial of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.values.rendered_values import parse_list
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PickTrialOperator(WorkspaceOperator):
    """Pick the trial whose training reported the best value. Other trials are only listed, unless none can be compared.

    With the trigger rule ALL_DONE it runs although trials have failed, or were stopped early.

    :param outcomes: The output `outcome` of the training of each trial, whether it succeeded or not.
    :param metric: A reported metric, or a number in the results of the training function.
    :param greater_is_better: Whether a greater value is better.
    :param trials: the plan, as PlanTrialsOperator returns it: a trial of it that has no outcome is listed as failed.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
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

    template_fields = (
        # Written by `make edges` from PickTrial.
        *("outcomes", "metric", "greater_is_better"),
        # End of what `make edges` writes.
        "trials",
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from PickTrial.
        outcomes: list[Any] | str,
        metric: str = "eval_loss",
        greater_is_better: bool | str = False,
        # End of what `make edges` writes.
        trials: list[Any] | str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from PickTrial.
        self.outcomes = outcomes
        self.metric = metric
        self.greater_is_better = greater_is_better
        # End of what `make edges` writes.
        self.trials = trials
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.requests import EndTrials, PickTrial
        from trainwright.steps.training.trials import Trial, pick_trial

        of_run = self.of_run()
        request = self.asked(
            PickTrial,
            {
                # Written by `make edges` from PickTrial.
                "outcomes": self.outcomes,
                "metric": self.metric,
                "greater_is_better": self.greater_is_better,
                # End of what `make edges` writes.
            },
            of_run,
        )
        planned = [Trial.model_validate(trial) for trial in parse_list("trials", self.trials)]
        picked = pick_trial(request, planned)
        if of_run.workspace or of_run.workspace_path:
            with self.steps(context, of_run) as steps:
                steps(EndTrials(indices=picked.others), self.step_run(context, of_run))
        self.log.info("%s", picked.line)
        best = picked.best
        chosen = {"index": best.index, "trainjob": best.trainjob, "value": picked.value, "settings": best.settings}
        return {**chosen, "summary": picked.summary}
