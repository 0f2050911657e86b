"""Promote an export to champion if it is better than the present one, or keep that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainwright.operators.errors import fail_fast
from trainwright.operators.jobs.export_errors import reject_unusable_exports
from trainwright.operators.values.credentials import credentials
from trainwright.operators.values.rendered_values import parse_flag, parse_number, parse_object

if TYPE_CHECKING:
    from airflow.sdk import Context


class PromoteModelOperator(BaseOperator):
    """Let an alias name an export if its evaluation is better than that of the export which it names now.

    The alias is a small file below export_uri with the evaluation that justified each promotion, and the history. It changes only
    if it still names what was compared with; after another promotion at the same time, it is compared again. A promoted export is
    pinned. Keeping the champion is no failure. A retry of a promotion that has succeeded changes nothing.

    :param export_uri: folder of all exports, as for ExportCheckpointOperator.
    :param checkpoint_uri: export to promote.
    :param checkpoint_digest: digest of its manifest; any other content is rejected.
    :param evaluation: figures of the export, or the result of EvaluateOperator.
    :param champion_evaluation: the same of the champion on the same data; empty: those recorded at its promotion, if of the
        same data.
    :param champion_digest: digest of the export that champion_evaluation is of.
    :param rule: better, or always to promote without comparison.
    :param metric: figure to compare.
    :param greater_is_better: whether a greater metric is better.
    :param margin: by how much it must be better.
    :param alias: champion, challenger, or another name.
    :param store_conn_id: connection with credentials for an object store, see docs/airflow/credentials.md.
    :return: promoted, reason, champion_uri (what the alias names now), previous_uri (what it named before; empty if nothing).
    """

    template_fields = (
        "export_uri",
        "checkpoint_uri",
        "checkpoint_digest",
        "evaluation",
        "champion_evaluation",
        "champion_digest",
        "rule",
        "metric",
        "greater_is_better",
        "margin",
        "alias",
        "store_conn_id",
    )
    template_fields_renderers = {"evaluation": "json", "champion_evaluation": "json"}

    def __init__(
        self,
        *,
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
        alias: str = "champion",
        store_conn_id: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.export_uri, self.checkpoint_uri, self.checkpoint_digest = export_uri, checkpoint_uri, checkpoint_digest
        self.evaluation, self.champion_evaluation, self.champion_digest = evaluation, champion_evaluation, champion_digest
        self.rule, self.metric, self.greater_is_better, self.margin = rule, metric, greater_is_better, margin
        self.alias, self.store_conn_id = alias, store_conn_id

    @fail_fast()
    @reject_unusable_exports()
    def execute(self, context: Context) -> dict[str, Any]:
        from trainwright.operators.values.allowed_places import check_places
        from trainwright.steps.promote import Gate, promote_if_better

        check_places((self.store_conn_id,), export_uri=self.export_uri, checkpoint_uri=self.checkpoint_uri)
        gate = Gate(
            self.rule,
            self.metric,
            parse_flag("greater_is_better", self.greater_is_better),
            parse_number("margin", self.margin),
        )
        evaluation = _figures("evaluation", self.evaluation)
        champions = _figures("champion_evaluation", self.champion_evaluation)
        with credentials(self.store_conn_id, None):
            verdict = promote_if_better(
                self.export_uri,
                self.checkpoint_uri,
                self.checkpoint_digest,
                evaluation=evaluation,
                champion_evaluation=champions or None,
                champion_digest=self.champion_digest,
                alias=self.alias,
                gate=gate,
            )
        decision = "promoted" if verdict.promoted else "kept"
        self.log.info("%s: %s; %s: %s", decision, verdict.reason, self.alias, verdict.champion)
        return {
            "promoted": verdict.promoted,
            "reason": verdict.reason,
            "champion_uri": verdict.champion,
            "previous_uri": verdict.previous,
        }


def _figures(name: str, value: Any) -> dict[str, Any]:
    """Return the figures of an evaluation: those of the component as they are, a result of EvaluateOperator made flat."""
    from trainwright.steps.evaluate import figures_of

    found = parse_object(name, value)
    return figures_of(found) if {"before", "after", "dataset_digest"} <= set(found) else found
