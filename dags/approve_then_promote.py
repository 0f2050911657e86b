"""The DAG `trainwright_approve_then_promote`: a person decides whether a retrained model becomes the champion.

It runs when a DAG of retraining has published a checkpoint and not decided about it (its parameter `promote` is never), or by hand
with the URI and digest of any export. Folder of exports and alias are those of the form, else of that run, else of the Variable
`trainwright_retraining`. The task `approve` waits for an answer in Airflow's page of required actions; without one in a week, and
after a rejection, nothing is promoted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, task

from trainwright.example_dags.form import field_param, slim
from trainwright.example_dags.retraining import MODEL, SETTINGS, alias, setting
from trainwright.example_dags.variable_settings import optional_fields
from trainwright.jobs.request.setting import Setting
from trainwright.operators import PromoteModelOperator
from trainwright.operators.finetuning import CONNECTIONS
from trainwright.operators.values.airflow_api import AirflowSkipException

ANSWER_WITHIN = timedelta(days=7)
FIELDS = (
    Setting("checkpoint_uri", "text", "", "Export", "Export to promote. Empty: the one that was published."),
    Setting("checkpoint_digest", "text", "", "Export", "Digest of its manifest."),
)
PARAMETERS = {
    **{field.name: field_param(field) for field in FIELDS},
    **optional_fields(
        {name: SETTINGS[name] for name in ("export_uri", "workspace", *CONNECTIONS, "evaluation") if name in SETTINGS}
    ),
}
SUBJECT = "Promote {{ ti.xcom_pull('candidate')['checkpoint'] }} to {{ ti.xcom_pull('candidate')['alias'] }}?"
BODY = """\
{% set candidate = ti.xcom_pull('candidate') %}\
| | |
|---|---|
| run | `{{ candidate['run'] }}` |
| step | {{ candidate['step'] }} |
{% for name in ('loss_before', 'loss_after', 'training_loss_before', 'training_loss_after') if name in candidate %}\
| {{ name | replace('_', ' ') }} | {{ candidate[name] }} |
{% endfor %}\
| manifest | `{{ candidate['manifest'] }}` |
"""


with DAG(
    "trainwright_approve_then_promote",
    description="Ask whether a retrained model becomes the champion, and promote it.",
    schedule=[MODEL],
    catchup=False,
    max_active_runs=1,
    params=PARAMETERS,
    tags=["trainwright"],
) as dag:

    @task
    def candidate(export_uri: str, alias: str, *, params: Any = None, triggering_asset_events: Any = None) -> dict[str, Any]:
        """The export to decide about: that of the parameters, else the one that was published last and not decided about.

        The folder of exports and the alias are those of the run that has published it, unless the form sets others.
        """
        known = {"run": "", "step": "", "export_uri": export_uri, "alias": alias}
        if params["checkpoint_uri"]:
            return {**known, "checkpoint": params["checkpoint_uri"], "manifest": params["checkpoint_digest"] or ""}
        events = [event for event in (triggering_asset_events or {}).get(MODEL, []) if event.extra.get("checkpoint")]
        if not events:
            raise ValueError("checkpoint_uri: set the export to promote; no asset event has started this run")
        if "promoted" in events[-1].extra:
            raise AirflowSkipException(f"{events[-1].extra['checkpoint']} was decided about by the run that trained it")
        is_given = {"export_uri": params["export_uri"] is not None, "alias": "promote_alias" in (params["evaluation"] or {})}
        chosen = {name: known[name] for name, given in is_given.items() if given}
        return {**known, **events[-1].extra, **chosen}

    approve = ApprovalOperator(task_id="approve", subject=SUBJECT, body=BODY, response_timeout=ANSWER_WITHIN)
    promote = PromoteModelOperator(
        task_id="promote",
        export_uri="{{ ti.xcom_pull('candidate')['export_uri'] }}",
        checkpoint_uri="{{ ti.xcom_pull('candidate')['checkpoint'] }}",
        checkpoint_digest="{{ ti.xcom_pull('candidate')['manifest'] }}",
        rule="always",
        alias="{{ ti.xcom_pull('candidate')['alias'] }}",
        workspace=setting("workspace"),
        **{name: setting(name) for name in CONNECTIONS if name in SETTINGS},
    )
    candidate(setting("export_uri"), alias()) >> approve >> promote
    slim(dag)
