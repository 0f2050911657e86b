"""The tasks of a retraining, which the DAGs share: train if there are new data, compare with the champion, promote what is better.

Settings come from the form, else from the Variable `trainwright_retraining`, a JSON object with the same names, else from their
defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import Asset, Param, task

from trainwright.example_dags import variable_settings
from trainwright.example_dags.chain import PARAMETERS, RETRIES, training_chain
from trainwright.example_dags.variable_settings import log_sources, optional_fields
from trainwright.operators import (
    EvaluateOperator,
    PromoteModelOperator,
    ReadChampionOperator,
    RetireRunOperator,
    RollBackModelOperator,
)
from trainwright.operators.values.airflow_api import AirflowSkipException
from trainwright.operators.workspace_operator import WorkspaceOperator

MODEL = Asset(name="trainwright_retrained_model", uri="trainwright://retrained-model")
RETENTION = "keep=1"
"""Retention of run folders in the workspace: the last run is kept for inspection, or to resume from its checkpoints."""
SETTINGS = {
    **PARAMETERS,
    "retention": Param(RETENTION, type="string", description="folders of earlier runs to keep: always, or keep=N"),
    "always_train": Param(False, type="boolean", description="train even if the dataset and the base model are unchanged"),
    "warm_start": Param(False, type="boolean", description="start from the champion's weights instead of the base model"),
    "rule": Param(
        "better",
        type="string",
        enum=["better", "always", "never"],
        description="when to promote: if better than the champion, always without comparison, or never (a person decides)",
    ),
    "metric": Param("loss", type="string", description="figure of the evaluations to compare"),
    "greater_is_better": Param(False, type="boolean", description="whether a greater metric is better"),
    "margin": Param(0.0, type="number", minimum=0, description="by how much it must be better"),
    "alias": Param("champion", type="string", description="name of what is in use"),
    "keep_exports": Param(0, type="integer", minimum=0, description="last exports to keep, besides promoted ones; 0: all"),
}
"""Settings of a retraining with their defaults."""
RETRAINING = {
    **optional_fields(SETTINGS),
    "roll_back": Param(
        False, type="boolean", description="only let the alias name again what it named before, and train nothing"
    ),
}
"""Parameters of the DAGs."""
NONE_FAILED = "none_failed_min_one_success"
"""Trigger rule after tasks that a run may skip; with all of them, the task itself is skipped."""


def setting(name: str) -> str:
    """The template of a setting."""
    return variable_settings.setting(name, SETTINGS[name].value)


def retraining(find_dataset: Callable[[], Any] | None = None) -> None:
    """Create the tasks in the current DAG. `find_dataset` creates a task that returns the dataset's URI, instead of the setting."""
    source = find_dataset() if find_dataset is not None else None
    given = {"resume": "{{ ti.xcom_pull('start-from') }}"}
    if source is not None:
        given["dataset_uri"] = f"{{{{ ti.xcom_pull('{source.operator.task_id}') }}}}"
    chain = training_chain(lambda name: given.get(name) or setting(name))
    every: dict[str, Any] = {"retries": RETRIES} if RETRIES else {}
    exports = {"export_uri": setting("export_uri"), "alias": setting("alias"), "store_conn_id": setting("store_conn_id"), **every}
    roll_back = RollBackModelOperator(task_id="roll-back", reason="parameter roll_back", **exports)
    champion = ReadChampionOperator(
        task_id="read-champion",
        dataset_digest="{{ ti.xcom_pull('initialize-dataset')['digest'] }}",
        model_digest="{{ ti.xcom_pull('initialize-model')['digest'] }}",
        always_train=setting("always_train"),
        **exports,
    )
    present = EvaluateOperator(
        task_id="evaluate-champion",
        **{
            **{name: getattr(chain.evaluation, name) for name in EvaluateOperator.template_fields},
            "checkpoint_uri": "{{ ti.xcom_pull('read-champion')['uri'] }}",
            "checkpoint_digest": "{{ ti.xcom_pull('read-champion')['digest'] }}",
            "dataset_digest": "{{ ti.xcom_pull('initialize-dataset')['digest'] }}",
            "retention": "always",
        },
        **every,
    )
    promote = PromoteModelOperator(
        task_id="promote",
        trigger_rule=NONE_FAILED,
        checkpoint_uri="{{ ti.xcom_pull('export-checkpoint')['uri'] }}",
        checkpoint_digest="{{ ti.xcom_pull('export-checkpoint')['digest'] }}",
        evaluation="{{ ti.xcom_pull('evaluate') }}",
        champion_evaluation="{{ ti.xcom_pull('evaluate-champion') }}",
        champion_digest="{{ ti.xcom_pull('read-champion')['digest'] }}",
        rule=setting("rule"),
        metric=setting("metric"),
        greater_is_better=setting("greater_is_better"),
        margin=setting("margin"),
        **exports,
    )
    tidy = RetireRunOperator(
        task_id="tidy",
        trigger_rule=NONE_FAILED,
        retention=setting("retention"),
        **{name: getattr(chain.evaluation, name) for name in WorkspaceOperator.template_fields},
        **every,
    )
    begin = source.operator if source is not None else chain.start
    choice, decision, announced = (
        roll_back_or_train(begin.task_id),
        decide(setting("rule")),
        publish(setting("export_uri"), setting("alias")),
    )
    start_from_weights = start_from(setting("warm_start"), setting("resume"))
    kept = keep_exports(setting("export_uri"), setting("keep_exports"), setting("store_conn_id"))
    choice >> [roll_back, begin]
    if source is not None:
        begin >> chain.start
    (
        chain.start
        >> [chain.dataset, chain.model]
        >> champion
        >> new_data(setting("always_train"))
        >> start_from_weights
        >> chain.training
    )
    chain.training >> chain.export >> chain.evaluation >> decision >> [present, promote, announced]
    present >> promote >> announced >> kept
    [chain.start, announced] >> tidy


@task.branch(task_id="roll-back-or-train")
def roll_back_or_train(train: str, *, params: Any = None) -> str:
    """The task to go on with. The Variable has no `roll_back`: it would roll back in every scheduled run.

    Raises AirflowFailException for a Variable that cannot be used.
    """
    log_sources(params, SETTINGS)
    return "roll-back" if params["roll_back"] else train


@task(task_id="new-data", inlets=[MODEL])
def new_data(always_train: Any, *, ti: Any = None, inlet_events: Any = None) -> str:
    """The dataset's digest if neither the champion nor the last model was trained on it. Otherwise the tasks after it are skipped."""
    from trainwright.operators.values.rendered_values import parse_flag

    dataset, model = (ti.xcom_pull(task_ids=f"initialize-{kind}")["digest"] for kind in ("dataset", "model"))
    champion = ti.xcom_pull(task_ids="read-champion")
    good = [event for event in inlet_events[MODEL] if "dataset_digest" in event.extra]
    last: dict[str, Any] = good[-1].extra if good else {}
    reason = ""
    if champion["state"] == "current":
        reason = f"the champion {champion['uri']} was trained on the same dataset, {dataset}"
    elif (
        last.get("dataset_digest") == dataset
        and last.get("model_digest", model) == model
        and not parse_flag("always_train", always_train)
    ):
        reason = f"the run {last['run']} was trained on the same dataset, {dataset}"
    if reason:
        ti.xcom_push("reason", reason)
        raise AirflowSkipException(reason)
    return str(dataset)


@task(task_id="start-from")
def start_from(warm_start: Any, resume: str, *, ti: Any = None) -> str:
    """The setting `resume` of the training: the champion's weights with `warm_start`, unless it has another base model."""
    from trainwright.operators.values.rendered_values import parse_flag

    champion = ti.xcom_pull(task_ids="read-champion")
    if not parse_flag("warm_start", warm_start) or not champion["uri"] or resume != "auto":
        return resume
    if champion["model_digest"] not in ("", ti.xcom_pull(task_ids="initialize-model")["digest"]):
        return resume
    return f"weights:{champion['uri']}"


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
    exported, evaluated = ti.xcom_pull(task_ids="export-checkpoint"), ti.xcom_pull(task_ids="evaluate")
    outlet_events[MODEL].extra = {
        "run": ti.xcom_pull(task_ids="start-run")["run_id"],
        "checkpoint": exported["uri"],
        "manifest": exported["digest"],
        "step": exported["step"],
        "export_uri": export_uri,
        "alias": alias,
        "dataset_digest": ti.xcom_pull(task_ids="new-data"),
        "model_digest": ti.xcom_pull(task_ids="initialize-model")["digest"],
        "loss_before": evaluated["before"]["loss"],
        "loss_after": evaluated["after"]["loss"],
        **(ti.xcom_pull(task_ids="promote") or {}),
    }


@task(task_id="keep-exports", inlets=[MODEL])
def keep_exports(export_uri: str, keep: Any, store_conn_id: str, *, inlet_events: Any = None) -> list[str]:
    """Delete the published exports but the last ones, and but those that are promoted or pinned. Returns the URIs of the deleted."""
    from trainwright.operators.values.allowed_places import check_places
    from trainwright.operators.values.credentials import credentials
    from trainwright.steps.old_exports import delete_old_exports

    check_places((store_conn_id,), export_uri=export_uri)
    extras = [event.extra for event in inlet_events[MODEL]]
    published = [(extra["checkpoint"], extra["manifest"]) for extra in extras if {"checkpoint", "manifest"} <= set(extra)]
    with credentials(store_conn_id or None, None):
        return delete_old_exports(export_uri, published, keep=int(keep))
