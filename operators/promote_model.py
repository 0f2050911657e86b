"""Promote an export to champion if it is better than the present one, or keep that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.operators.errors import fail_fast, reject_unusable_exports
from trainwright.operators.workspace_operator import ExportsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class PromoteModelOperator(ExportsOperator):
    """Let an alias name an export if its evaluation is better than that of the export which it names now.

    The alias is a small file below export_uri with the evaluation that justified each promotion, and the history. It changes only
    if it still names what was compared with; after another promotion at the same time, it is compared again. A promoted export is
    pinned. Keeping the champion is no failure. A retry of a promotion that has succeeded changes nothing.

    :param export_uri: Folder of all exports, as for the export of a checkpoint.
    :param checkpoint_uri: Export to promote.
    :param checkpoint_digest: Digest of its manifest; any other content is rejected.
    :param evaluation: Figures of the export, as its evaluation returns them.
    :param champion_evaluation: Figures of the champion on the same data. Empty: those recorded at its promotion, if of the same
        data.
    :param champion_digest: Digest of the export that champion_evaluation is of.
    :param rule: better, or always to promote without comparison.
    :param metric: Figure to compare.
    :param greater_is_better: Whether a greater metric is better.
    :param margin: By how much it must be better.
    :param allow_trained_rows: Whether a figure of held-out rows counts if 5 % of these rows, or more, are trained on, too.
    :param alias: champion, challenger, or another name.
    :param training: Settings that the export was trained with: if it is not promoted, they are remembered, so that ReadChampion
        finds no need to train the same again.
    :param run: the run, as StartRunOperator returns it: its id, its workspace, where it is done, and further settings of this task.
    :param workspace: claim with the exports, pvc://CLAIM[/FOLDER], for `file:///trainwright-workspace/...`: if the worker does not see
        them, a pod that mounts the claim does this.
    :param workspace_path: not used.
    :param runs_on: auto, or worker for no pod.
    :param job: settings of the pod, as in InitializeDatasetOperator.
    :param run_id: not used.
    :param namespace: namespace of the pod; defaults to the connection's.
    :param conn_id: connection of type `trainwright` or `kubernetes` for the pod; None uses the environment.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :param hub_conn_id: not used.
    :return: promoted, reason, champion_uri (what the alias names now), previous_uri (what it named before; empty if nothing).
    """

    template_fields = (
        # Written by `make edges` from PromoteModel.
        *("export_uri", "checkpoint_uri", "checkpoint_digest", "evaluation", "champion_evaluation"),
        *("champion_digest", "rule", "metric", "greater_is_better", "margin", "allow_trained_rows"),
        *("alias", "training"),
        # End of what `make edges` writes.
        *ExportsOperator.template_fields,
    )
    template_fields_renderers = {**ExportsOperator.template_fields_renderers, "evaluation": "json", "champion_evaluation": "json"}

    def __init__(
        self,
        *,
        # Written by `make edges` from PromoteModel.
        export_uri: str,
        checkpoint_uri: str,
        checkpoint_digest: str,
        evaluation: dict[str, Any] | str | None = None,
        champion_evaluation: dict[str, Any] | str | None = None,
        champion_digest: str = "",
        rule: str = "better",
        metric: str = "loss",
        greater_is_better: bool | str = False,
        margin: float | str = 0.0,
        allow_trained_rows: bool | str = False,
        alias: str = "champion",
        training: dict[str, Any] | str | None = None,
        # End of what `make edges` writes.
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        # Written by `make edges` from PromoteModel.
        self.export_uri = export_uri
        self.checkpoint_uri = checkpoint_uri
        self.checkpoint_digest = checkpoint_digest
        self.evaluation = evaluation
        self.champion_evaluation = champion_evaluation
        self.champion_digest = champion_digest
        self.rule = rule
        self.metric = metric
        self.greater_is_better = greater_is_better
        self.margin = margin
        self.allow_trained_rows = allow_trained_rows
        self.alias = alias
        self.training = training
        # End of what `make edges` writes.
        self.check_values(vars(self))

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.steps.promotion.promote import with_figures
        from trainwright.steps.requests import PromoteModel

        of_run = self.of_run()
        request = self.asked(
            PromoteModel,
            {
                # Written by `make edges` from PromoteModel.
                "export_uri": self.export_uri,
                "checkpoint_uri": self.checkpoint_uri,
                "checkpoint_digest": self.checkpoint_digest,
                "evaluation": self.evaluation,
                "champion_evaluation": self.champion_evaluation,
                "champion_digest": self.champion_digest,
                "rule": self.rule,
                "metric": self.metric,
                "greater_is_better": self.greater_is_better,
                "margin": self.margin,
                "allow_trained_rows": self.allow_trained_rows,
                "alias": self.alias,
                "training": self.training,
                # End of what `make edges` writes.
            },
            of_run,
            of_run.promotion,
        )
        if "training" in of_run.given and not request.training:
            request = request.having(training=of_run.training.given_values())
        request = with_figures(request)
        verdict = self.do(request, context, of_run)
        decision = "promoted" if verdict["promoted"] else "kept"
        self.log.info("%s: %s; %s: %s", decision, verdict["reason"], request.alias, verdict["champion_uri"])
        return verdict
