"""The DAG `trainwright_approve_then_promote`: a person decides whether a retrained model becomes the champion.

It runs when a DAG of retraining has published a checkpoint and not decided about it (its parameter `rule` is never), or by hand with
the URI and digest of any export. The task `approve` waits for an answer in Airflow's page of required actions; without one in a week,
and after a rejection, nothing is promoted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, task

from trainwright.example_dags.form import form
from trainwright.example_dags.retraining import MODEL, VARIABLE
from trainwright.operators import PromoteModelOperator
from trainwright.operators.values.airflow_api import AirflowSkipException

ANSWER_WITHIN = timedelta(days=7)
PARAMETERS = {
    "checkpoint_uri": Param("", type="string", description="export to promote; empty: the one that was published"),
    "checkpoint_digest": Param("", type="string", description="digest of its manifest"),
    "export_uri": Param("", type="string", description=f"folder of all exports; empty: that of the Variable {VARIABLE}"),
    "alias": Param("champion", type="string"),
    "store_conn_id": Param("", type="string", description="connection with credentials for an object store"),
}
SUBJECT = "Promote {{ ti.xcom_pull('candidate')['checkpoint'] }} to {{ params.alias }}?"
BODY = """\
{% set candidate = ti.xcom_pull('candidate') %}\
| | |
|---|---|
| run | `{{ candidate['run'] }}` |
| step | {{ candidate['step'] }} |
| loss before | {{ candidate['loss_before'] }} |
| loss after | {{ candidate['loss_after'] }} |
| manifest | `{{ candidate['manifest'] }}` |
"""


def setting(name: str) -> str:
    """The template of a setting: the parameter if it is set, else the Variable's value, else empty."""
    return f"{{{{ params.{name} or var.json.get('{VARIABLE}', {{}}).get('{name}', '') }}}}"


with DAG(
    "trainwright_approve_then_promote",
    description="Ask whether a retrained model becomes the champion, and promote it.",
    schedule=[MODEL],
    catchup=False,
    max_active_runs=1,
    params=form(PARAMETERS, required=()),
    tags=["trainwright"],
) as dag:

    @task
    def candidate(*, params: Any = None, triggering_asset_events: Any = None) -> dict[str, Any]:
        """The export to decide about: that of the parameters, else the one that was published last and not decided about."""
        known = dict.fromkeys(("run", "step", "loss_before", "loss_after"), "")
        if params["checkpoint_uri"]:
            return {**known, "checkpoint": params["checkpoint_uri"], "manifest": params["checkpoint_digest"] or ""}
        events = [event for event in (triggering_asset_events or {}).get(MODEL, []) if event.extra.get("checkpoint")]
        if not events:
            raise ValueError("checkpoint_uri: set the export to promote; no asset event has started this run")
        if "promoted" in events[-1].extra:
            raise AirflowSkipException(f"{events[-1].extra['checkpoint']} was decided about by the run that trained it")
        return {**known, **events[-1].extra}

    approve = ApprovalOperator(task_id="approve", subject=SUBJECT, body=BODY, response_timeout=ANSWER_WITHIN)
    promote = PromoteModelOperator(
        task_id="promote",
        export_uri=setting("export_uri"),
        checkpoint_uri="{{ ti.xcom_pull('candidate')['checkpoint'] }}",
        checkpoint_digest="{{ ti.xcom_pull('candidate')['manifest'] }}",
        rule="always",
        alias="{{ params.alias }}",
        store_conn_id=setting("store_conn_id"),
    )
    candidate() >> approve >> promote
