"""Plan the trials of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast
from trainwright.operators.workspace_operator import WorkspaceOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanTrialsOperator(WorkspaceOperator):
    """Choose the settings of each trial of a sweep: those given, all combinations, or some drawn at random.

    The plan depends on the inputs alone: a retry gives the same one, and so the same TrainJobs. It is made in the worker; with a
    workspace, the folders of the trials are recorded there, and retention can delete them.

    :param settings: Settings of the builtin trainer for all trials.
    :param trials: Settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}].
    :param space: Instead of trials: for each setting the list of its values, or a range as {"min": 1e-5, "max": 1e-3, "log": true}.
    :param max_trials: Maximum number of trials; 0: all combinations. Required for ranges.
    :param seed: Seed of the random choice.
    :param metric: What the trials are to be compared by; for eval_loss, held-out rows are evaluated after each epoch.
    :param dataset_digest: digest of the prepared dataset.
    :param model_digest: digest of the prepared model.
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
    :return: the trials, each with index and settings, for ``TrainTrialOperator.partial(...).expand(trial=plan.output)``.
    """

    template_fields = (
        # Written by `make edges` from PlanTrials.
        *("settings", "trials", "space", "max_trials", "seed", "metric"),
        # End of what `make edges` writes.
        "dataset_digest",
        "model_digest",
        *WorkspaceOperator.template_fields,
    )

    def __init__(
        self,
        *,
        # Written by `make edges` from PlanTrials.
        settings: dict[str, Any] | str | None = None,
        trials: list[Any] | str | None = None,
        space: dict[str, Any] | str | None = None,
        max_trials: int | str = 0,
        seed: int | str = 0,
        metric: str = "",
        # End of what `make edges` writes.
        dataset_digest: str = "",
        model_digest: str = "",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from PlanTrials.
        self.settings = settings
        self.trials = trials
        self.space = space
        self.max_trials = max_trials
        self.seed = seed
        self.metric = metric
        # End of what `make edges` writes.
        self.dataset_digest, self.model_digest = dataset_digest, model_digest
        self.check_values(vars(self))

    @fail_fast()
    def execute(self, context: Context) -> list[dict[str, Any]]:
        from trainwright.steps.requests import BeginTrials, PlanTrials
        from trainwright.steps.training.trials import plan_trials

        of_run = self.of_run()
        request = self.asked(
            PlanTrials,
            {
                # Written by `make edges` from PlanTrials.
                "settings": self.settings,
                "trials": self.trials,
                "space": self.space,
                "max_trials": self.max_trials,
                "seed": self.seed,
                "metric": self.metric,
                # End of what `make edges` writes.
            },
            of_run,
            PlanTrials().having(settings=of_run.training.settings) if of_run.training.settings else None,
        )
        planned = plan_trials(**request.by_name())
        for trial in planned:
            self.log.info("trial %d: %s", trial.index, trial.settings)
        if of_run.workspace or of_run.workspace_path:
            begun = BeginTrials(count=len(planned), dataset_digest=self.dataset_digest, model_digest=self.model_digest)
            with self.steps(context, of_run) as steps:
                steps(begun, self.step_run(context, of_run))
        return [trial.model_dump() for trial in planned]
