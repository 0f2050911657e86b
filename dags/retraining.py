"""The tasks of a retraining, which the DAGs share: train if there are new data, compare with the champion, promote what is better.

Settings come from the form, else from the Variable `trainwright_retraining`, a JSON object with the same names, else from their
defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import Asset, task

from trainwright.example_dags import variable_settings
from trainwright.example_dags.chain import every_task
from trainwright.example_dags.form import field_param, fields_of
from trainwright.example_dags.variable_settings import log_sources, optional_fields
from trainwright.operators import (
    EvaluateOperator,
    PromoteModelOperator,
    ReadChampionOperator,
    RetireRunOperator,
    RollBackModelOperator,
)
from trainwright.operators.finetuning import Chain, connections
from trainwright.operators.values.airflow_api import AirflowSkipException
from trainwright.operators.workspace_operator import WorkspaceOperator
from trainwright.steps.chain import RETRAINING as STEPS

MODEL = Asset(name="trainwright_retrained_model", uri="trainwright://retrained-model")
DEFAULTS = {"retention": "keep=5", "keep_exports": 0}
"""Settings of `evaluation` that hold unless the form or the Variable has others: the run folders that are kept in the workspace, to
inspect or resume them, and the exports that are kept besides promoted ones (0: all)."""
_FIELDS = {field.name: field_param(field) for field in fields_of("Retraining")}
SETTINGS = {name: param for name, param in _FIELDS.items() if name != "roll_back"}
"""Settings of a retraining with their defaults."""
RETRAINING = {**optional_fields(SETTINGS), "roll_back": _FIELDS["roll_back"]}
"""Parameters of the DAGs."""
NONE_FAILED = "none_failed_min_one_success"
"""Trigger rule after tasks that a run may skip; with all of them, the task itself is skipped."""


_WITHOUT_RETENTION = (
    "{{ dict(ti.xcom_pull('start-run'), evaluation=dict(ti.xcom_pull('start-run')['evaluation'], retention='always')) | tojson }}"
)
"""The run for the evaluation of the champion, which leaves the folders of other runs to the last task."""


def setting(name: str) -> str:
    """The template of a setting."""
    return variable_settings.setting(name, SETTINGS[name].value)


def alias() -> str:
    """The template of the alias, which is known before the first task has sorted the settings."""
    return variable_settings.entry("evaluation", "promote_alias", "champion")


def retraining(find_dataset: Callable[[], Any] | None = None) -> None:
    """Create the tasks in the current DAG. `find_dataset` creates a task that returns the dataset's URI, instead of the setting."""
    source = find_dataset() if find_dataset is not None else None
    given: dict[str, Any] = {name: setting(name) for name in SETTINGS}
    if source is not None:
        given["dataset_uri"] = f"{{{{ ti.xcom_pull('{source.operator.task_id}') }}}}"
    chain = Chain({**given, "defaults": DEFAULTS}, STEPS, every=every_task())
    chain.add("initialize-dataset")
    chain.add("initialize-model")
    chain.add("read-champion", ReadChampionOperator, alias=alias())
    chain.add("train", gate=new_data(given["always_train"]))
    chain.add("export-checkpoint")
    evaluation = chain.add("evaluate")
    # What follows depends on decisions, and not only on results.
    present = EvaluateOperator(task_id="evaluate-champion", **{**chain.arguments("evaluate-champion"), "run": _WITHOUT_RETENTION})
    promote = PromoteModelOperator(
        task_id="promote",
        trigger_rule=NONE_FAILED,
        **{**chain.arguments("promote-over-champion"), "champion_evaluation": "{{ ti.xcom_pull('evaluate-champion') }}"},
    )
    roll_back = RollBackModelOperator(
        task_id="roll-back",
        reason="parameter roll_back",
        alias=alias(),
        export_uri=given["export_uri"],
        workspace=given["workspace"],
        **connections(given),
        **every_task(),
    )
    tidy = RetireRunOperator(
        task_id="tidy",
        trigger_rule=NONE_FAILED,
        retention="{{ ti.xcom_pull('start-run')['evaluation']['retention'] }}",
        **{name: getattr(evaluation, name) for name in WorkspaceOperator.template_fields},
        **every_task(),
    )
    start = chain.tasks["start-run"]
    begin = source.operator if source is not None else start
    choice, decision, announced = (
        roll_back_or_train(begin.task_id),
        decide(given["promote"]),
        publish(given["export_uri"], alias()),
    )
    kept = keep_exports(given["export_uri"], "{{ ti.xcom_pull('start-run')['own']['keep_exports'] }}", given["store_conn_id"])
    choice >> [roll_back, begin]
    if source is not None:
        begin >> start
    evaluation >> decision >> [present, promote, announced]
    present >> promote >> announced >> kept
    [start, announced] >> tidy


@task.branch(task_id="roll-back-or-train")
def roll_back_or_train(train: str, *, params: Any = None) -> str:
    """The task to go on with. The Variable has no `roll_back`: it would roll back in every scheduled run.

    Raises AirflowFailException for a Variable that cannot be used.
    """
    log_sources(params, SETTINGS)
    return "roll-back" if params["roll_back"] else train


@task(task_id="new-data", inlets=[MODEL])
def new_data(always_train: Any, *, ti: Any = None, inlet_events: Any = None) -> str:
    """The dataset's digest if there is something to train. Otherwise the tasks after this one are skipped, with the reason.

    That is that the champion was trained on it, that the same training was not promoted, or that the last run has trained the same.
    """
    from trainwright.operators.values.rendered_values import parse_flag

    dataset, model = (ti.xcom_pull(task_ids=f"initialize-{kind}")["digest"] for kind in ("dataset", "model"))
    champion = ti.xcom_pull(task_ids="read-champion")
    good = [event for event in inlet_events[MODEL] if "dataset_digest" in event.extra]
    last: dict[str, Any] = good[-1].extra if good else {}
    reason = ""
    if champion["state"] == "current":
        reason = champion["reason"]
    elif (
        last.get("dataset_digest") == dataset
        and last.get("model_digest", model) == model
        and last.get("training_digest", champion["training_digest"]) == champion["training_digest"]
        and not parse_flag("always_train", always_train)
    ):
        reason = f"the run {last['run']} was trained on the same dataset, {dataset}"
    if reason:
        ti.xcom_push("reason", reason)
        raise AirflowSkipException(reason)
    return str(dataset)


@task.branch(task_id="decide")
def decide(rule: str, *, ti: Any = None) -> str:
    """The task to go on with: measure the champion on the same data, promote without that, or promote nothing."""
    if rule == "never":
        return "publish"
    return "evaluate-champion" if rule == "better" and ti.xcom_pull(task_ids="read-champion")["uri"] else "promote"


@task(trigger_rule=NONE_FAILED, outlets=[MODEL])
def publish(export_uri: str, alias: str, *, ti: Any = None, outlet_events: Any = None) -> None:
    """Emit the asset event with the checkpoint, and what was decided about it, if anything: the run was successful.

    Whoever decides later needs the folder of exports and the alias of this run, which the form may have set.
    """
    from trainwright.evaluation.figures import loss_name

    exported, evaluated = ti.xcom_pull(task_ids="export-checkpoint"), ti.xcom_pull(task_ids="evaluate")
    loss = loss_name(evaluated["after"])
    outlet_events[MODEL].extra = {
        "run": ti.xcom_pull(task_ids="start-run")["run_id"],
        "checkpoint": exported["uri"],
        "manifest": exported["digest"],
        "step": exported["step"],
        "export_uri": export_uri,
        "alias": alias,
        "dataset_digest": ti.xcom_pull(task_ids="new-data"),
        "model_digest": ti.xcom_pull(task_ids="initialize-model")["digest"],
        "training_digest": ti.xcom_pull(task_ids="read-champion")["training_digest"],
        **{f"{loss}_{when}": evaluated[when][loss] for when in ("before", "after")},
        **(ti.xcom_pull(task_ids="promote") or {}),
    }


@task(task_id="keep-exports", inlets=[MODEL])
def keep_exports(export_uri: str, keep: Any, store_conn_id: str, *, inlet_events: Any = None) -> list[str]:
    """Delete the published exports but the last ones, and but those that are promoted or pinned. Returns the URIs of the deleted."""
    from trainwright.operators.values.allowed_places import check_places
    from trainwright.operators.values.connections import credentials
    from trainwright.steps.checkpoints.export import delete_old_exports

    check_places((store_conn_id,), export_uri=export_uri)
    extras = [event.extra for event in inlet_events[MODEL]]
    published = [(extra["checkpoint"], extra["manifest"]) for extra in extras if {"checkpoint", "manifest"} <= set(extra)]
    with credentials(store_conn_id or None, None):
        return delete_old_exports(export_uri, published, keep=int(keep))
